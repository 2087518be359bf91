"""``python -m bridge.spark.membership PARENT_PID``: started by ``process_client``, which sends the rest over the
pipe."""

import sys

from bridge.spark.membership.membership_process import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
