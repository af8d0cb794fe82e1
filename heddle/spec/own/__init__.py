"""Models that are code of the user's: what a job file says of them, and what plans must know."""

from heddle.spec.own.model import OwnModel as OwnModel
from heddle.spec.own.model import common_divisor as common_divisor
from heddle.spec.own.read import own_model as own_model
