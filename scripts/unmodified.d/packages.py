"""Installs what the programs need. Debian's packages must not start services of their own."""

import os, subprocess, sys

POLICY = "/usr/sbin/policy-rc.d"


def missing(wanted):
    """Packages without their file. `wanted`: the file of each."""
    return sorted(name for name, file in wanted.items() if not os.path.exists(file))


def install(wanted):
    """Installs Debian's packages, one by one, as one that is not to be had must not keep the others away."""
    names = missing(wanted)
    if not names or os.geteuid() != 0:
        return
    print(f"installing {' '.join(names)}", file=sys.stderr)
    has_policy = os.path.exists(POLICY)
    if not has_policy:
        with open(POLICY, "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
        os.chmod(POLICY, 0o755)
    try:
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        _run(["apt-get", "-qq", "update"], environment)
        for name in names:
            _run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", name], environment)
    finally:
        if not has_policy:
            os.unlink(POLICY)


def python(directory, *names):
    """A virtual environment with packages of PyPI; it is kept for the next time. Returns its interpreter, or raises."""
    interpreter = os.path.join(directory, "bin", "python")
    if subprocess.run([interpreter, "-c", ""] if os.path.exists(interpreter) else ["false"]).returncode != 0:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True, capture_output=True)
    pip = [interpreter, "-m", "pip", "--disable-pip-version-check"]
    if subprocess.run([*pip, "show", "-q", *names], capture_output=True).returncode != 0:
        print(f"installing {' '.join(names)}", file=sys.stderr)
        subprocess.run([*pip, "install", "-q", *names], check=True, stdout=sys.stderr)
    return interpreter


def _run(command, environment):
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        print(f"{' '.join(command)}: {result.stderr.strip()}", file=sys.stderr)
