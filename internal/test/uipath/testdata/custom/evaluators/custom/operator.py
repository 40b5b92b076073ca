"""Custom evaluators as UiPath's users write them."""

from uipath.eval.evaluators import BaseEvaluationCriteria, BaseEvaluator, BaseEvaluatorConfig, BaseEvaluatorJustification
from uipath.eval.models import BooleanEvaluationResult, NumericEvaluationResult


class Criteria(BaseEvaluationCriteria):
    operator: str


class Config(BaseEvaluatorConfig[Criteria]):
    name: str = "Operator"
    default_evaluation_criteria: Criteria | None = None


class Operator(BaseEvaluator[Criteria, Config, BaseEvaluatorJustification]):
    """Scores the operator that a span of the agent names."""

    @classmethod
    def get_evaluator_id(cls):
        return "operator"

    async def evaluate(self, agent_execution, evaluation_criteria):
        print("looking")
        found = [span.attributes["operator"] for span in agent_execution.workload_trace if span.name == "track_operator"]
        if not found:
            raise ValueError("No 'track_operator' span found")
        details = self.validate_justification({"expected": evaluation_criteria.operator, "actual": found[0]})
        return NumericEvaluationResult(score=float(found[0] == evaluation_criteria.operator), details=details)

    def reduce_scores(self, results):
        return min((one.score for one in results), default=0.0)


class Answered(Operator):
    """Whether there is an output; true and false."""

    async def evaluate(self, execution, evaluation_criteria):
        return BooleanEvaluationResult(score=bool(execution.workload_output), details=None)


class Nobody:
    pass
