"""How a table fits a terminal: which columns are left out, which texts are shortened."""

import pytest

from zkconsumer.cli.table_layout import ELLIPSIS, lay_out_table, shorten, text_width

HEADS = ("TOPIC", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
ROWS = (
    ("clicks", "1234567890", "g1_worker-17.example.org-1700000000000-0a1b2c3d", "worker-17.example.org", "-"),
    ("orders", "?", "g1_worker-18.example.org-1700000000001-4e5f6a7b", "worker-18.example.org", "-"),
)
DROPPABLE = ("HOST", "CLIENT-ID")


def test_without_a_width_each_column_is_as_wide_as_its_widest_text_and_nothing_is_left_out():
    layout = lay_out_table(("A", "LONG"), [("first", "1"), ("2", "")], droppable=("LONG",))
    assert layout.lines == ("A      LONG", "first  1", "2")
    assert layout.note("x") is None


@pytest.mark.parametrize("width", range(40, 140))
def test_a_table_is_never_wider_than_the_terminal_and_as_complete_as_possible(width):
    layout = lay_out_table(HEADS, ROWS, width, droppable=DROPPABLE)
    assert max(map(len, layout.lines)) <= width
    whole = max(map(len, lay_out_table(HEADS, ROWS).lines))
    assert (layout.note("x") is None) == (whole <= width)


def test_a_column_without_any_value_is_left_out_before_less_important_ones():
    layout = lay_out_table(HEADS, ROWS, 90, droppable=DROPPABLE)
    assert layout.dropped == ("CLIENT-ID",)
    assert layout.lines[0].split() == ["TOPIC", "LAG", "CONSUMER-ID", "HOST"]


def test_no_column_is_left_out_where_shorter_texts_make_room_enough():
    layout = lay_out_table(HEADS, ROWS, 100, droppable=("HOST",))
    assert layout.dropped == ()
    assert layout.is_shortened
    assert layout.note("-o wide shows all") == "(long texts are shortened; -o wide shows all)"


def test_numbers_and_heads_are_never_shortened():
    layout = lay_out_table(HEADS, ROWS, 10, droppable=DROPPABLE)
    assert layout.dropped == ("HOST", "CLIENT-ID")
    assert layout.lines[0].split() == ["TOPIC", "LAG", "CONSUMER-ID"]
    assert "1234567890" in layout.lines[1]
    assert layout.note("x") == "(columns left out: HOST, CLIENT-ID; long texts are shortened; x)"


def test_a_name_is_shortened_in_the_middle_and_a_sentence_at_its_end():
    assert shorten("g1_worker-1700000000000-0a1b2c3d", 11) == f"g1_wo{ELLIPSIS}b2c3d"
    assert shorten("the broker did not answer", 11) == f"the broker{ELLIPSIS}"
    assert shorten("short", 5) == "short"
    assert shorten("name", 1) == ELLIPSIS


def test_wide_characters_count_as_two_columns():
    assert text_width("集团") == 4
    assert text_width("e\u0301") == 1
    layout = lay_out_table(("GROUP", "LAG"), [("集团", "1"), ("ascii", "2")])
    assert layout.lines == ("GROUP  LAG", "集团   1", "ascii  2")
    assert all(text_width(shorten("集团集团集团", width)) <= width for width in range(1, 12))


def test_the_colour_of_a_cell_follows_from_its_whole_text_and_does_not_move_the_columns():
    def paint(head, text):
        return (lambda shown: f"<{shown}>") if head == "A" and text.startswith("bad") else None

    layout = lay_out_table(("A", "B"), [("bad: much too long a text", "1")], 12, paint=paint)
    assert layout.lines == ("A          B", f"<bad: muc{ELLIPSIS}>  1")


def test_a_column_that_may_be_left_out_must_exist():
    with pytest.raises(AssertionError, match="no column"):
        lay_out_table(("A",), [], 10, droppable=("B",))
