"""Whether a process may use the NeuronCores here: `python device.py`, with the rights of its container.

It starts the runtime (libnrt) as a program without a framework and ends it. on-host.sh runs it with more and more
rights, then once more: cores that a process has left must be free for the next one. Not run on hardware.
"""

import ctypes
import sys

LIBRARIES = ("libnrt.so.1", "/opt/aws/neuron/lib/libnrt.so.1")
_NO_FRAMEWORK = 1  # NRT_FRAMEWORK_TYPE_NO_FW (nrt.h)


def why_not() -> str:
    """Return why the runtime does not start; "" where it does."""
    for name in LIBRARIES:
        try:
            runtime = ctypes.CDLL(name)
        except OSError:
            continue
        if status := runtime.nrt_init(_NO_FRAMEWORK, b"", b""):
            return f"nrt_init gave status {status}; what libnrt says of it is above"
        runtime.nrt_close()
        return ""
    return f"none of {', '.join(LIBRARIES)} can be loaded"


if __name__ == "__main__":
    sys.exit(why_not())
