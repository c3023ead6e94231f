"""Faults that nobody can notice, each with the reason: they change no result, no memory that is read, and no error.

By the fault's number, which is that of its text, not of its line. A new row says what the code does with the fault, and
why that is the same.
"""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {
    "4ac80a9bc9": "HostStep.run asserts that a host step has its equation, so the test for None never decides",
    "27826c69f4": "the index is clamped to the last branch again after the conversion to int32",
    "834938802e": "two conversions become one to the same dtype, and the walk asks again, which drops it",
    "af4bf82c13": "an empty view of the block has the same shape, dtype and flags; it only keeps the block alive",
    "77cb477699": "Builder.const lays every constant densely, so there is nothing to lay together",
    "8fec13d031": "a tuple instead of a list: the caller pairs it with the equation's results and nothing else",
    "f15ddf0046": "the mark of what is no variable is compared with numbers of variables only, which are 0 or more",
    "6d36f6257e": "places in the state, which all take from here; words that are not aligned are as good on x86-64",
    "b31d114d55": "counts of references do not pass 32 bits, of which the other way of counting takes the lower ones",
    "f9fcf17653": "a matrix that is decomposed is square",
    "c4029229d0": "another line is fetched before it is needed, which changes nothing but time",
    "ba732d488c": "a tuple instead of a list: whoever asks for a rule takes its results one by one",
    "69de46cc6b": "a limit of bytes above which another way is quicker, off by one element",
    "a7ab9357b1": "address space is reserved in larger pieces only so that the system is asked less often",
    "978cdedfc8": "a kernel's items in another order: each is moved once, and no two of them overlap",
    "210a641a8d": "the two lists have one length: one is made of the other in the line above",
    "581c06b8e5": "at 0 both ways give 0",
    "ac6a0a1fc8": "the larger of the same two numbers",
    "d7c48c1a00": "the solver proposes the sizes that it has met itself, and those of operands are among them",
    "d9aefe485d": "a row's end by masks or one by one is the same; which is quicker depends on the processor",
    "0be1694c9f": "what a kernel means is read at once, and copied where its shape asks for that",
    "f9c0db8b9a": "LLVM makes several loads of one that no register holds",
    "89d4d9110b": "taps that fit come again with that period, so that the first is among so many or nowhere",
    "4214c2f475": "who gives the values does not look at the list again",
    "c7759adfd3": "the text of a step that is cut off is shorter by a letter",
    "42c327d0a1": "numbers that are their floor are their ceiling",
    "8e9f10065b": "weights that are no whole vectors are read by masks, which is slower",
    "cc1319f082": "a fresh array is copied once more",
    "673c6f5a3f": "a tuple instead of a list: whoever finishes the block takes its values one by one",
    "85856675a6": "who has a structure of a type has registered it",
    "b8e759f8ea": "inputs are filled up to whole vectors: one less makes as many turns, and nobody reads the number",
    "0d8f6938f4": "what is rescaled lies in the range of int32, where a shift by 0 changes nothing",
    "d02a3690ac": "where no setting asks for anything, jit is not switched off: what is asked first is quicker",
    "d98f9d0ed7": "a page more, whose bytes are looked at afterwards like those of the last page",
    "2aad7ed81f": "there are more runs of tiles, and shorter ones, which changes speed alone",
    "1226ae6f29": "a call has as many operands as its program, which `Program.check` holds",
    "054d7edaca": "the number that it adds is below what is divided by",
    "33a003e524": "small integers of a set come in order",
    "11a654b254": "a pointer that is a constant was null, whatever its number; now another number is refused",
    "ac06b117d2": "without a batch the number of a pixel is below the outermost size, whose remainder changes nothing",
}
