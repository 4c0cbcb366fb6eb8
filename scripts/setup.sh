#!/usr/bin/env bash
# Installs what building and testing Weft need beside Rust itself, and nothing that is there already.
#
#   scripts/setup.sh build    a C linker and the wasm32-unknown-unknown target (the default)
#   scripts/setup.sh test     the same, and the tools that the tests and benchmarks call
#
# It takes Rust as it finds it (whatever `rustc` is active here), asks nothing, and does nothing on a second run.
set -euo pipefail

readonly target=wasm32-unknown-unknown
readonly rustup_seconds=60

scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT
# A signal must reach the trap above too.
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# A folder of our own under $scratch, all of which goes when the script ends.
scratch_folder() {
    [ -n "$scratch" ] || scratch=$(mktemp -d)
    mkdir -p "$scratch/$1"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        fail "\`$*\` needs root, and neither root nor a sudo that asks no password is here; run it yourself, then run this again"
    fi
}

# install_packages COMMAND PACKAGE...: the packages that provide COMMAND, where it is missing.
install_packages() {
    local command=$1
    shift
    have "$command" || apt_install "\`$command\`" "$@"
}

# A Vulkan driver that runs on the cores: the tests prove the GPU's kernels on it, whatever else is here.
software_gpu() {
    local driver
    for driver in /usr/share/vulkan/icd.d/lvp_icd*.json /etc/vulkan/icd.d/lvp_icd*.json; do
        [ ! -e "$driver" ] || return 0
    done
    apt_install "a software GPU" mesa-vulkan-drivers
}

# Tests start servers of their own; one that the package starts, where there is a service manager, is left alone.
redis_server() {
    install_packages redis-server redis-server redis-tools
}

# Prometheus' own judge of metrics, in target/tools. Only this program of its package: no server is installed.
metrics_judge() {
    local tools
    tools=$(cd "$(dirname "$0")/.." && pwd)/target/tools
    [ ! -x "$tools/promtool" ] || return 0
    mkdir -p "$tools"
    if have promtool; then
        ln -sf "$(command -v promtool)" "$tools/promtool"
        return 0
    fi
    have apt-get && have dpkg-deb || fail "\`promtool\` is missing and there is no apt-get here; install it with your system's package tool"
    say "fetching promtool, of Debian's package prometheus, into target/tools"
    fresh_lists
    scratch_folder promtool
    (cd "$scratch/promtool" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" prometheus >/dev/null && dpkg-deb --extract prometheus_*.deb .) ||
        fail "could not fetch prometheus; see apt's message above"
    install -m 755 "$scratch/promtool/usr/bin/promtool" "$tools/promtool"
}

# The Python libraries whose files the tests read.
python_libraries() {
    install_packages python3 python3
    # Debian's Python comes without what makes an environment.
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install "environments of Python" python3-venv
    "$(dirname "$0")/python-venv.sh" || fail "no Python environment for the tests; see the message above"
}

# Brings apt's lists of packages up to date, once.
fresh_lists() {
    [ -z "${apt_is_fresh:-}" ] || return 0
    # A third-party source that is down must not keep us from Debian's own packages.
    as_root apt-get update -qq || say "apt-get update had errors; trying with what it got"
    apt_is_fresh=yes
}

# apt_install WHAT PACKAGE...: the packages that bring WHAT.
apt_install() {
    local what=$1
    shift
    have apt-get || fail "$what is missing and there is no apt-get here; install $* with your system's package tool"
    say "installing $* (for $what)"
    fresh_lists
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
        fail "could not install $*; see apt's message above"
}

# Compiling something is the only check that also notices a target left over from another version of rustc.
target_works() {
    scratch_folder check
    printf '%s\n' 'pub fn answer() -> String { 42.to_string() }' >"$scratch/check/lib.rs"
    rustc --target "$target" --crate-type cdylib -o "$scratch/check/lib.wasm" "$scratch/check/lib.rs" >"$scratch/check/log" 2>&1
}

target_from_rustup() {
    have rustup || return 1
    # The active toolchain, named: rustup's idea of it can differ from a `rustc` found first on the PATH.
    local toolchain
    toolchain=$(basename "$(rustc --print sysroot)")
    rustup toolchain list 2>/dev/null | grep -q "^$toolchain\b" || return 1
    say "rustup target add $target (at most $rustup_seconds s)"
    timeout "$rustup_seconds" rustup target add --toolchain "$toolchain" "$target" && target_works
}

# The archive that this machine's apt already uses for Debian itself, from either format of sources.
debian_mirror() {
    {
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
            sed -nE 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+)[[:space:]].*/\2/p'
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
            sed -nE 's/^URIs:[[:space:]]*([^[:space:]]+).*/\1/p'
    } | sed 's#/$##' | grep -E '/debian$' | head -n 1
}

# The standard library's source is a Debian package of its own. Built for the target and put where rustup would have put
# it, it cannot be told from rustup's. apt works on lists of its own here, so that the machine's sources stay as they are.
target_from_debian() {
    local version mirror codename suite keyring options found=
    for command in apt-get dpkg cargo; do
        have "$command" || { say "no \`$command\` here, so not from Debian's rust-src either"; return 1; }
    done
    version=$(rustc --version | sed -nE 's/^rustc ([0-9]+\.[0-9]+\.[0-9]+) .*/\1/p')
    [ -n "$version" ] || { say "\`$(rustc --version)\` is not a released version, so Debian has no rust-src of it"; return 1; }
    mirror=$(debian_mirror || true)
    [ -n "$mirror" ] || { say "this machine's apt sources name no Debian mirror"; return 1; }
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

    scratch_folder lists/partial
    scratch_folder cache/archives/partial
    scratch_folder package
    options=(-qq
        -o "Dir::Etc::sourcelist=$scratch/sources.list" -o "Dir::Etc::sourceparts=-"
        -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch/cache"
        # The sandbox user of apt cannot enter a scratch folder, and here nothing is installed.
        -o "APT::Sandbox::User=$(id -un)" -o "Acquire::Languages=none" -o "Acquire::Retries=2")
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    for suite in trixie-backports "$codename-backports" "$codename" testing unstable; do
        printf 'deb %s%s %s main\n' "$([ ! -e "$keyring" ] || printf '[signed-by=%s] ' "$keyring")" "$mirror" "$suite" \
            >"$scratch/sources.list"
        say "looking for rust-src $version in $suite"
        apt-get "${options[@]}" update >"$scratch/apt.log" 2>&1 || continue
        if (cd "$scratch/package" && apt-get "${options[@]}" download "rust-src=$version*") >"$scratch/apt.log" 2>&1; then
            found=$suite
            break
        fi
    done
    [ -n "$found" ] || { say "no suite of the mirror has rust-src $version"; return 1; }

    say "building the standard library of $target from rust-src $version ($found), about a minute"
    dpkg -x "$scratch"/package/rust-src_*.deb "$scratch/source"
    local library
    library=$scratch/source/usr/src/rustc-$version/library/sysroot
    [ -d "$library" ] || { say "that package has no library/sysroot where it is expected"; return 1; }
    # Not the caller's target folder or flags: this build has its own.
    (
        cd "$library"
        unset CARGO_BUILD_TARGET CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS RUSTC_WRAPPER
        export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes"
        export CARGO_TARGET_DIR="$scratch/build"
        cargo build --release --target "$target" --features "panic-unwind compiler-builtins-mem"
    ) >"$scratch/build.log" 2>&1 || { tail -n 20 "$scratch/build.log" >&2; say "building it failed"; return 1; }

    local place
    place=$(rustc --print sysroot)/lib/rustlib/$target
    # Beside its place first, then renamed: an interrupted copy must not look like a target.
    rm -rf "$place.new" 2>/dev/null
    if ! mkdir -p "$place.new/lib" || ! cp "$scratch/build/$target/release/deps/"*.rlib "$place.new/lib/"; then
        say "cannot write to \`$place\`; run this as the user who owns the toolchain"
        return 1
    fi
    rm -rf "$place"
    mv "$place.new" "$place"
    target_works
}

wasm_target() {
    if target_works; then
        say "$target is there"
    elif target_from_rustup || target_from_debian; then
        say "$target installed in $(rustc --print sysroot)"
    else
        sed 's/^/    /' "$scratch/check/log" >&2
        fail "no $target for $(rustc --version): tried \`rustup target add $target\` and Debian's rust-src; \
run the former where its server can be reached, or use a rustc that Debian has the source of"
    fi
}

build_tools() {
    have rustc || fail "there is no \`rustc\` here; install Rust from https://rustup.rs first"
    install_packages cc gcc libc6-dev
    wasm_target
}

test_tools() {
    build_tools
    install_packages curl curl ca-certificates
    install_packages jq jq
    install_packages wrk wrk
    # Tests try from real pages what a page may do to a node.
    install_packages chromium chromium
    redis_server
    software_gpu
    metrics_judge
    python_libraries
}

[ $# -gt 0 ] || set -- build
for step in "$@"; do
    case $step in
    build) build_tools ;;
    test) test_tools ;;
    *) fail "no step \`$step\`; there are \`build\` and \`test\`" ;;
    esac
done
say "done"
