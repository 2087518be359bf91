"""``python -m bridge.spark.keeper PARENT_PID``: started by ``client``, with everything else on the pipe."""

import sys

from bridge.spark.keeper.process import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
