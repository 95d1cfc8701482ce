"""Rewards of this example: keyword arguments in (completions, completion_ids, every dataset column), one number per completion out."""
import re


def hash_line(completions, **kwargs):
    """0.5 for a line "#### number" anywhere, 1 when it is the last thing written."""
    out = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[0]["content"]
        line = re.search(r"(?m)^#### -?[\d,.]+\s*$", text)
        out.append(0.0 if not line else 1.0 if not text[line.end():].strip() else 0.5)
    return out
