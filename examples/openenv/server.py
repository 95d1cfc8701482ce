"""Games as an OpenEnv server: pip install openenv==0.10.0; python server.py [PORT] [guess|second_chance]"""
import random
import sys
from uuid import uuid4

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Number(Action):
    number: int


class Answer(Observation):
    text: str = ""


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.steps, self.hidden, self.episode = 0, 0, ""

    def begin(self, hidden, episode_id):
        self.steps, self.hidden, self.episode = 0, hidden, episode_id or str(uuid4())

    @property
    def state(self):
        return State(episode_id=self.episode, step_count=self.steps)


class GuessingGame(Game):
    """A hidden number from 1 to 9; fewer guesses earn more."""

    def reset(self, seed=None, episode_id=None, **columns):
        self.begin(random.Random(seed).randint(1, 9), episode_id)
        return Answer(text="Guess a number from 1 to 9.")

    def step(self, action, **_):
        self.steps += 1
        if action.number == self.hidden:
            return Answer(text="right", done=True, reward=1.0 - 0.15 * (self.steps - 1))
        over = self.steps == 4 or not 1 <= action.number <= 9
        return Answer(text="higher" if action.number < self.hidden else "lower", done=over, reward=0.0)


class SecondChance(Game):
    """A maths problem of the dataset: a wrong answer may be corrected once, for half of the reward."""

    def reset(self, seed=None, episode_id=None, answer=None, **columns):
        self.begin(int(answer), episode_id)
        return Answer()

    def step(self, action, **_):
        self.steps += 1
        right = action.number == self.hidden
        return Answer(text="right" if right else "No. Once more.", done=right or self.steps == 2, reward=1.0 / self.steps if right else 0.0)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8001
    game = sys.argv[2] if len(sys.argv) > 2 else "guess"
    kind = {"guess": GuessingGame, "second_chance": SecondChance}[game]
    app = create_fastapi_app(kind, Number, Answer, max_concurrent_envs=256, env_name=game)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
