"""The environments of the two examples. A class needs reset and step; one instance plays one completion at a time."""

import re


class SecondChance:
    """A maths problem: a wrong answer may be corrected once, for half of the reward."""

    def reset(self, answer, **columns):
        self.answer = int(answer)
        self.attempts = 0

    def step(self, text):
        # (what the model is told next or None, reward, done)
        self.attempts += 1
        stated = re.search(r"####\s*(-?\d+)", text)
        if stated and int(stated[1]) == self.answer:
            return None, 1.0 if self.attempts == 1 else 0.5, True
        return "No. Once more.", 0.0, self.attempts == 2


class GuessingGame:
    """A hidden number from 1 to 9: the model is told higher or lower, and fewer guesses earn more."""

    def reset(self, hidden, **columns):
        self.hidden = hidden
        self.guesses = 0
        return " Guess a number from 1 to 9."

    def step(self, text):
        self.guesses += 1
        numbers = re.findall(r"\d+", text)
        guess = int(numbers[-1]) if numbers else 0
        if guess == self.hidden:
            return None, 1.0 - 0.15 * (self.guesses - 1), True
        if not 1 <= guess <= 9 or self.guesses == 4:
            return None, 0.0, True
        return "higher" if guess < self.hidden else "lower", 0.0, False
