"""What the command line ends with: sysexits where they fit, the shell's convention for commands."""

USAGE = 64
UNREACHABLE = 69
INTERNAL = 70
BUSY = 75
LOST = 76
DENIED = 77
CONFIG = 78
NOT_HELD = 79
CANNOT_EXECUTE = 126
NOT_FOUND = 127
BY_SIGNAL = 128

TABLE = """\
exit codes:
  of the command that was run, passed through; 128+N when signal N ended it
  64  wrong usage                    76  the lease was lost while the command ran
  69  the store cannot be reached    77  permission denied
  70  an error inside holdfast       78  wrong URL or configuration
  75  busy (-E sets another)         79  not held, or another token
  126 / 127  the command cannot be executed / is not found
  130 / 143  interrupted / terminated while still waiting
"""
