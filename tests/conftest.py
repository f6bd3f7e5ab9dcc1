"""For all tests. A shell that starts them in the background has them ignore Ctrl-C, and so would what they start and
interrupt.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
