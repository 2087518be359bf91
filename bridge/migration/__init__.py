"""Moving a live group from ZooKeeper to the group coordinator, and back.

A person plans, looks at the plan, and applies it; whoever is interrupted applies it again.

    look ----> Seen --plan--> Plan --copy_steps--> Step, Step, ... --Performer--> both stores
    (look.py)  (seen.py)      (plan.py)            (copy.py, rollback.py)  (Real, or Explain for a dry run)

    what may happen in which order   phases.py           what the control znode and its children hold   control.py
    what a plan decides              decisions.py        how a commit of ours is told from another's     provenance.py
    one named action, idempotent     step.py             what ended it, and with which exit code         errors.py
                                                         when a store is away, and waited for            away.py
    what is carried over, as values  copies.py           the steps that carry it                         mover.py
    the modern group kept empty      seat.py, seat_*.py  the steps that read back and compare            verify.py
    what stored numbers mean         conventions.py      where each partition starts                     targets.py
    which rights the steps need      needed_rights.py    what of the znodes may be changed                look_rights.py
    what stops the whole group       preflight.py        how the group differs from its plan             drift.py
    what the steps of a run share    moving.py           drift: refused, or accepted and kept             accepting.py
    who carries steps out            performers.py       programs around the cut-over                     hooks.py
    the old znodes in a file         archive.py          where a migration stands                         status.py
    a member that goes over without a stop   connector/, which acts; member/, which decides
    a plan as a file                 plan_file.py        its lines, strictly read                        plan_json.py
    the page about the phases        phases_page.py      offsets that somebody deleted meanwhile          put_back.py

Where members stay (``dual``), the steps are in ``dual``, and what a member does in ``member``.

The order rule, for every step: *before authority moves from A to B, B equals A for every partition, and all claims are
fenced at the new epoch.*  A step looks at what it finds and not at what somebody wrote down that he would do, so to run
``apply`` again is the recovery.
"""
