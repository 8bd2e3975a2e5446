# Beside every program. Importing it prints the case's number, which proves that
# the program ran; ended() prints it again. T holds places and addresses on the
# host. Nothing that is printed here is believed, only searched for canaries.
import json, os, select, signal, sys, time

NONCE = sys.argv[1]
T = json.loads(sys.argv[2])
WORD = "berm-canary-"


def began():
    print("began " + NONCE, flush=True)
    # The runner looks at the walls now, before anything is used up. Where it can,
    # it says when it has.
    if os.environ.pop("BERM_ATTACK_LOOKS", ""):
        select.select([0], [], [], 3)
    else:
        time.sleep(0.15)


def ended(code=0):
    sys.stdout.flush()
    print("\nended " + NONCE, flush=True)
    os._exit(code)


def attempt(what, f, *args):
    """Do one thing, say what came of it, and go on."""
    try:
        r = f(*args)
        print("%s: done %.200r" % (what, r), flush=True)
        return r
    except BaseException as e:
        print("%s: %.120s" % (what, e), flush=True)


def spill(path, n=1 << 20):
    """Print a file as it is."""
    def f():
        with open(path, "rb", buffering=0) as h:
            b = h.read(n) or b""
        sys.stdout.flush()
        os.write(1, b)
        return len(b)
    return attempt(path, f)


def deaf():
    """Ignore every signal that can be ignored."""
    for s in range(1, 65):
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


began()
