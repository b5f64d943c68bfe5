# kvpool_compile_options(target): the flags that every target of this project is compiled with. They
# are private: a program that links kvpool keeps its own.
function(kvpool_compile_options target)
  target_compile_options(${target} PRIVATE
    # A compiler may fuse a*b+c into one instruction with one rounding where the machine has it.
    # Then the same source gives different last bits on different machines, and a kernel differs
    # from its scalar oracle. Where a fused multiply-add is wanted, the code says so.
    -ffp-contract=off
    # Nobody replaces single functions of ours at load time. GCC would otherwise not inline across
    # functions in position-independent code, which costs a fifth of the allocator's speed.
    -fno-semantic-interposition
    -Wall -Wextra -Wpedantic -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual
    # A constructor's parameter may be named like the public member that it sets; gcc's plain
    # -Wshadow refuses that, clang's does not.
    $<IF:$<CXX_COMPILER_ID:GNU>,-Wshadow=local,-Wshadow>
    $<$<BOOL:${KVPOOL_WERROR}>:-Werror>)
  target_compile_definitions(${target} PRIVATE
    # Classes with state verify their invariants after each mutation.
    $<$<CONFIG:Debug>:KVPOOL_CHECK_INVARIANTS=1>)
endfunction()
