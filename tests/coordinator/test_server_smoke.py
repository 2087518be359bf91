"""The whole way of a group, once."""

from tests.coordinator.server_harness import Table


def test_a_group_joins_syncs_commits_leaves_and_is_deleted() -> None:
    table = Table()
    leader, follower = table.stable(2)
    assert leader.generation_id == follower.generation_id == 1
    assert table.heartbeat(follower) == 0
    assert table.commit({("t", 0): 7}, follower) == [0]
    assert table.fetch([("t", 0)]) == {("t", 0): (7, "", 0)}
    assert table.describe().group_state == "Stable"
    assert table.leave_one(leader.member_id) == 0
    again = table.join(member_id=follower.member_id)
    assert table.joined(again).generation_id == 2
    assert table.leave_one(follower.member_id) == 0
    assert table.describe().group_state == "Empty"
    assert table.delete("g") == {"g": 0}
    assert table.describe().group_state == "Dead"
