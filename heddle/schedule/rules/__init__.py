"""The schedules there are: a file each, and a line here, whose order is that of tables and choices."""

# ruff: noqa: F401, I001
from heddle.schedule.rules.one_f_one_b import ONE_F_ONE_B
from heddle.schedule.rules.interleaved import INTERLEAVED
from heddle.schedule.rules.gpipe import GPIPE
from heddle.schedule.rules.zb_h import ZB_H1, ZB_H2
from heddle.schedule.rules.zb_v import ZB_V
from heddle.schedule.rules.dualpipev import DUALPIPEV
from heddle.schedule.rules.deep_one_f_one_b import DEEP_ONE_F_ONE_B
