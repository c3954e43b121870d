"""Texts that the suite's requests are made of.

Every one says something twice: a drafter that looks drafts up in the prompt has some to find, and any other too.
"""

# Longer than a block of the prefix cache (16 tokens on an accelerator, 128 on a CPU), so that a second request hits it.
PREAMBLE = (
    "You work at the desk of a small railway station between two rivers. People come with questions about trains, "
    "tickets, bicycles, lost umbrellas and the weather, and you answer each of them kindly and in plain words. The "
    "station has two platforms. Trains to the north leave from platform one, trains to the south from platform two. "
    "On weekdays a train leaves every half hour from six in the morning until ten in the evening; on Sundays and on "
    "holidays one leaves every hour. A ticket to the harbour costs four euros, a ticket to the old town costs six, "
    "and children under seven travel free. Bicycles are welcome outside the rush hours. The waiting room opens at "
    "half past five and has a stove, a shelf of books and a map of the valley. Lost things are kept for ninety days. "
    "If you do not know an answer, you say so, and you name the person who does. You never invent a train."
)

SENTENCES = (
    "The old lighthouse keeper wrote the height of the tide in a green book every morning before breakfast",
    "A market under the bridge sells apples, plums, pears and walnuts until the last boat has left",
    "When the first snow falls the mountain road is closed and letters come by sledge once a week",
    "The baker opens the oven at four, fills it with round loaves and sleeps again until seven",
    "Two brothers built a small boat of oak and sailed it from the lake down to the sea",
    "In the library of the monastery every shelf has a number, a colour and the name of a saint",
    "The train to the harbour stops at the mill, at the glass works and behind the fish market",
    "A gardener plants beans next to maize so that the beans can climb and the soil stays good",
    "The doctor asked three questions about sleep, two about food and none about the broken window",
    "Our neighbour repairs clocks, radios and bicycles in a shed that smells of oil and pine",
    "The committee meets on the first Monday of the month and drinks tea before it decides anything",
    "Before the storm the swallows fly low, the cattle lie down and the dog hides under the table",
    "A good map shows the wells, the fords and the places where the path is lost in winter",
    "The choir sang one song for the harvest, one song for the rain and one song for the dead",
    "She kept the keys of the house on a red string and the letters in a tin box",
    "The river rises in March, carries ice in April and is warm enough to swim in by June",
    "Every bridge in the town has a toll, a story and a stone with the year on it",
    "The teacher drew a circle on the board, divided it by seven and asked who would like a piece",
    "On the island there are forty goats, nine families, one shop and no doctor at all",
    "The museum shows a loom, a plough, a fire engine and the bed of a forgotten king",
    "He counted the steps to the tower, lost count at two hundred and began again from the bottom",
    "A letter from the capital takes three days by coach and a whole week by ship",
    "The forest is oak on the south side, beech on the north side and birch along the stream",
    "At noon the workers sit on the wall, eat bread with onions and talk about the price of iron",
    "The painter mixed blue from stone, yellow from roots and black from the soot of the lamp",
    "When the bell rings twice the ferry leaves, and when it rings three times the ferry is late",
    "The village has an inn with six beds, a stable with eight places and a very proud cook",
    "A fox came every evening to the same gate, waited for a while and went back to the hill",
    "The accounts of the mill show wheat in one column, rye in the next and debts in the last",
    "From the top of the hill you can see two churches, four farms and on clear days the sea",
    "The carpenter measures twice, saws once and never lends his best plane to anybody",
    "In summer the night train carries more bicycles than people and stops wherever someone waves",
)

# Short, so that samples are cheap; each has begun a repetition, and may go on with it or not. Prompt lookup drafts for
# most of their samples.
OPEN = (
    "yes, no, yes, no, yes, no, yes,",
    "He said yes and she said no. He said no and she said",
    "bread, butter, cheese, bread, butter,",
    "Monday, Tuesday, Monday, Tuesday, Monday,",
    "4 2 6 4 2 1 4 2",
    "a b c a b c a b",
)

DAYS = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"
LISTS = (
    f"Write the days of the week again and again, on one line: {DAYS}, {DAYS}, Monday,",
    "Copy this line five times: the red boat follows the green boat and the green boat follows the blue boat",
    "Go on with the list, one item a line.\n1. bread\n2. butter\n3. cheese\n4. bread\n5. butter\n6. cheese\n7.",
    "Say the rhyme three times: one, two, buckle my shoe; three, four, knock at the door; five, six, pick up sticks",
    "Repeat after me, and do not stop: tick tock goes the clock, tick tock goes the clock, tick tock goes the clock",
    "Tell a long story about a river, a mill and a miller's daughter. Begin with: Once upon a time",
)
STORY = LISTS[5]


def free_prefix(sentence: str) -> str:
    """The first half of a sentence: what comes next is open."""
    words = sentence.split()
    return " ".join(words[: len(words) // 2])


def repeating_prefix(sentence: str) -> str:
    """The sentence twice and its first words again: what comes next has been said."""
    return f"{sentence}.\n{sentence}.\n{' '.join(sentence.split()[:6])}"
