"""How old members are locked out, and let in again; each a step, each with the step that takes it back.

owners.py     a fence in the place of every claim (K2)         lifted by     RemoveOwnerFences
behind_switch.py  the same where members stay, once they gave their claims back
acls.py       access lists that refuse even a zombie (K9)      put back by   RestoreAcls
left.py       fences that a completed migration left, for the next one to take over
standing.py   nobody is there any more; the fences stand
nudge.py      wakes members that gave up behind a fence (K7), and looks whether they read again
mark.py       what a fence says of itself    lists.py  which lists are a fence    rights.py  who may change them
list_of_made.py   the list that a node gets, from the lists of before
"""
