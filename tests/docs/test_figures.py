"""The pictures of the pages are what their scripts draw."""

import re
import xml.etree.ElementTree as ElementTree

import torch

from docs.figures import memory_timeline
from tests.memory import settled


def test_memory_timeline():
    settled()  # what earlier tests left would go during the steps, and lower the peak
    torch.accel.empty_cache()
    torch.accel.reset_peak_memory_stats()
    before = torch.accel.memory_stats()["requested_bytes.all.current"]
    points, phases = memory_timeline.timeline(memory_timeline.record()["device_traces"][0])
    peak = torch.accel.memory_stats()["requested_bytes.all.peak"]
    assert max(sum(point.values()) for point in points) == peak - before
    # A step ends as it began, but for the optimizer's state, which it makes once: two moments of each weight.
    after_model = points[phases.index("forward") - 1]
    after = points[-1]
    assert (after["model"], after["forward"], after["backward"]) == (after_model["model"], 0, 0)
    assert after_model["optimizer"] == 0 and 1.5 * after["model"] < after["optimizer"] < 2 * after["model"]
    drawn = ElementTree.fromstring(memory_timeline.draw(points, phases))
    shown = ElementTree.parse(memory_timeline.__file__.replace(".py", ".svg")).getroot()

    def words(picture: ElementTree.Element) -> list[str]:  # the numbers are of one torch version
        return [re.sub(r"[\d.]+", "#", str(e.text)) for e in picture.iter("{http://www.w3.org/2000/svg}text")]

    assert words(drawn) == words(shown)
