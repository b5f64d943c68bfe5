#!/usr/bin/env bash
# Installs the Debian packages of the given sets (tools/packages.txt) that are missing. As root it calls
# apt-get; otherwise it prints the command to run and fails.
# Usage: tools/install_packages.sh SET…
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export PYTHON=${PYTHON:-python3}

missing=()
while read -r set package probe; do
  [[ $set == \#* || -z $set ]] && continue
  [[ " $* " == *" $set "* ]] || continue
  bash -c "$probe" >/dev/null 2>&1 || missing+=("$package")
done <"$here/packages.txt"
[[ ${#missing[@]} -gt 0 ]] || exit 0

install="apt-get install --yes --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "kvpool needs these packages, under the names that Debian 12 gives them: ${missing[*]}" >&2
  exit 1
elif [[ $(id -u) -ne 0 ]]; then
  echo "kvpool needs Debian packages that are not installed. As root, run: $install" >&2
  exit 1
fi
echo "Installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet --quiet
$install --quiet --quiet -o Dpkg::Use-Pty=0 </dev/null
