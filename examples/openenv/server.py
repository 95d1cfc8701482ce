"""The guessing game as an OpenEnv server: pip install openenv==0.10.0; python server.py [PORT]"""
import random
import sys
from uuid import uuid4

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: int


class Answer(Observation):
    text: str = ""


class GuessingGame(Environment):
    """A hidden number from 1 to 9; fewer guesses earn more."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.steps, self.hidden, self.episode = 0, 0, ""

    def reset(self, seed=None, episode_id=None, **columns):
        self.steps, self.hidden, self.episode = 0, random.Random(seed).randint(1, 9), episode_id or str(uuid4())
        return Answer(text="Guess a number from 1 to 9.")

    def step(self, action, **_):
        self.steps += 1
        if action.number == self.hidden:
            return Answer(text="right", done=True, reward=1.0 - 0.15 * (self.steps - 1))
        over = self.steps == 4 or not 1 <= action.number <= 9
        return Answer(text="higher" if action.number < self.hidden else "lower", done=over, reward=0.0)

    @property
    def state(self):
        return State(episode_id=self.episode, step_count=self.steps)


if __name__ == "__main__":
    app = create_fastapi_app(GuessingGame, Guess, Answer, max_concurrent_envs=256, env_name="guess")
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8001, log_level="warning")
