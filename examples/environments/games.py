"""Environments of the two examples: each is a class with reset and step."""

import re


def last_number(text):
    numbers = re.findall(r"-?\d+", text)
    return int(numbers[-1]) if numbers else None


class SecondChance:
    """A maths problem: a wrong answer may be corrected once, for half of the reward."""

    def reset(self, answer, **row):
        self.answer = int(answer)
        self.attempts = 0

    def step(self, text):
        self.attempts += 1
        stated = re.search(r"####\s*(-?\d+)", text)
        if stated and int(stated[1]) == self.answer:
            return None, 1.0 if self.attempts == 1 else 0.5, True
        return "No. Once more.", 0.0, self.attempts == 2


class GuessingGame:
    """A hidden number from 1 to 9; the environment says higher or lower, and fewer guesses earn more."""

    def reset(self, seed, **row):
        self.hidden = 1 + seed % 9
        self.guesses = 0
        return " Guess a number from 1 to 9."

    def step(self, text):
        self.guesses += 1
        guess = last_number(text)
        if guess == self.hidden:
            return None, 1.0 - 0.15 * (self.guesses - 1), True
        if guess is None or not 1 <= guess <= 9:
            return None, -0.2, True
        return "higher" if guess < self.hidden else "lower", 0.0, False
