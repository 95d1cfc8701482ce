"""Environments of TRL's kind and a reward that writes down what it is given."""
import json
import os


class Shelf:
    def reset(self, books=None, **row):
        assert "environment" not in row, row
        self.books, self.taken = books or "", []
        return None if "prompt" in row else "Books: " + self.books

    def take(self, title: str) -> str:
        """Takes.

        Args:
            title: Which
        """
        self.taken.append(title)
        return "took " + title

    def look(self) -> str:
        """Looks."""
        return "books " + self.books

    def get_reward(self):
        return None if self.books == "none" else float(sum(map(len, self.taken))) + 0.25 * len(self.books)


class Room:
    def reset(self, prompt, **row):
        self.seen = []
        return " Dark."

    def look(self, where: str) -> str:
        """Looks.

        Args:
            where: Where to
        """
        self.seen.append(where)
        return "a wall"


class Other(Room):
    def get_reward(self):
        return float(len(self.seen))


def told(message):
    calls = " ".join(call["function"]["name"] + json.dumps(call["function"]["arguments"]) for call in message.get("tool_calls") or [])
    return message["role"] + ": " + (message.get("content") or "") + ("|" + calls if calls else "")


def length(prompts, completions, environment, **kwargs):
    with open(os.environ["SCRIPTED_SEEN"], "a") as file:
        for p, c, e in zip(prompts, completions, environment):
            file.write(json.dumps([e, "/".join(map(told, p)), "/".join(map(told, c))]) + "\n")
    return [None if e == "shelf" else 0.1 * len(json.dumps(c)) for e, c in zip(environment, completions)]
