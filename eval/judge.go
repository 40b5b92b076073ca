package eval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Judge puts the questions of evaluators about an agent's work to models. This package knows no
// network: the caller of an evaluator sets an implementation in [Subject.Judge]. It is safe for
// concurrent use.
type Judge interface {
	// Ask asks one question of one model. The error is a [*NotAsked] if no model can be asked here,
	// and a [*JudgeError] if a model was asked and gave no verdict; Answer.Call then says what was
	// asked.
	Ask(ctx context.Context, q Question) (Answer, error)
	// Redact removes secrets from a text before it becomes a part of a question.
	Redact(text string) string
}

// SameAsAgent is the Question.Model that means the model of the agent which is judged.
const SameAsAgent = "same-as-agent"

// Question is a question to a model.
type Question struct {
	EvaluatorID string
	// Sample counts the questions that one evaluator asks about one rollout, from 0. Questions that
	// are otherwise alike are asked once for each number.
	Sample int
	// Model is its name, or SameAsAgent.
	Model          string
	System, Prompt string
	// Embed asks for the embedding of Prompt, an array of numbers, in place of a call of Tool. Answers to
	// equal questions are the same, whatever their Sample.
	Embed bool
	// Kept says the same of other questions, whose answers are kept even if those of judges are not.
	Kept bool
	// Tool is the tool that the model has to call: its arguments are the verdict.
	Tool Tool
	// Temperature and Seed are not sent if nil, MaxTokens not if 0.
	Temperature *float64
	Seed        *int64
	MaxTokens   int
	// TemplateHash is the hash of the texts before they were filled.
	TemplateHash string
	// Check returns an error that says what is wrong with the arguments of the tool.
	Check func(arguments json.RawMessage) error
}

// Tool is a tool that a model is given; Schema is the JSON Schema of its arguments.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Answer is the answer of a model.
type Answer struct {
	// Arguments are the arguments of the tool, or an embedding; they have passed Question.Check.
	Arguments json.RawMessage
	Call      JudgeCall
}

// JudgeCall is one question with its outcome, as results show it. It holds no secret and no text.
type JudgeCall struct {
	Provider string `json:"provider"`
	// API is chat, responses, messages or embeddings, Host the host of its URL.
	API  string `json:"api"`
	Host string `json:"host"`
	// Model is the model that was asked for, ModelReturned the one that says it has answered.
	Model             string `json:"model"`
	ModelReturned     string `json:"modelReturned,omitempty"`
	SystemFingerprint string `json:"systemFingerprint,omitempty"`
	// Temperature and Seed are as they were configured. Dropped names the parameters that the provider
	// did not accept.
	Temperature *float64 `json:"temperature"`
	Seed        *int64   `json:"seed"`
	MaxTokens   int      `json:"maxTokens,omitempty"`
	Dropped     []string `json:"dropped,omitempty"`
	// PromptHash is the hash of the texts as they were sent, TemplateHash that of the texts before
	// they were filled.
	PromptHash   string `json:"promptHash"`
	TemplateHash string `json:"templateHash"`
	RequestID    string `json:"requestId,omitempty"`
	// Score is from 0 to 1, nil if there is none. Label is the answer of a judge that chooses among
	// labels, or LabelEmbedding.
	Score *float64 `json:"score"`
	Label string   `json:"label,omitempty"`
	// Error says why there is no answer, ErrorCategory in one word.
	Error         string        `json:"error,omitempty"`
	ErrorCategory JudgeCategory `json:"errorCategory,omitempty"`
	// Attempts counts the requests, 0 if the answer came from the cache or out of a batch.
	Attempts int  `json:"attempts"`
	Cached   bool `json:"cached"`
	// Batch is the provider's id of the batch in which the question was asked. If it had no answer
	// there it was asked again, and Attempts is not 0.
	Batch string `json:"batch,omitempty"`
	// PaidTwice says that an answer that was no verdict was paid for, and then another one. Usage
	// covers both.
	PaidTwice bool `json:"paidTwice,omitempty"`
	// Usage is nil if the provider did not report it. For an answer from the cache it is the usage
	// when the answer was first given, at a cost of 0.
	Usage     *Usage `json:"usage"`
	LatencyMs int64  `json:"latencyMs"`
}

// LabelEmbedding is the JudgeCall.Label of an embedding.
const LabelEmbedding = "embedding"

// The labels of a judge that compares two answers, in JudgeCall.Label.
const (
	LabelA   = "A"
	LabelB   = "B"
	LabelTie = "tie"
)

// Judged says how models came to a result.
type Judged struct {
	// Fingerprint is the same for results of the same templates, models and parameters.
	Fingerprint string      `json:"fingerprint"`
	Verdicts    []JudgeCall `json:"verdicts"`
	// Reduce is how several verdicts became one: mean, median or majority.
	Reduce string `json:"reduce"`
	// Spread is the standard deviation of the verdicts' scores, Agreement the share of the verdicts
	// that equal the reduced one; nil if there is none.
	Spread    *float64 `json:"spread"`
	Agreement *float64 `json:"agreement"`
}

// And adds the verdicts of another line.
func (j *Judged) And(other *Judged) *Judged {
	if j == nil || other == nil {
		return cmp.Or(j, other)
	}
	return &Judged{Fingerprint: j.Fingerprint, Verdicts: slices.Concat(j.Verdicts, other.Verdicts), Reduce: j.Reduce}
}

// JudgeCategory says in one word why a judge has given no verdict.
type JudgeCategory string

// The categories of judges that fail.
const (
	JudgeAuth        JudgeCategory = "judge-auth"
	JudgeModel       JudgeCategory = "judge-model"
	JudgeRateLimit   JudgeCategory = "judge-rate-limit"
	JudgeUnavailable JudgeCategory = "judge-unavailable"
	JudgeTimeout     JudgeCategory = "judge-timeout"
	JudgeRefused     JudgeCategory = "judge-refused"
	JudgeTruncated   JudgeCategory = "judge-truncated"
	JudgeInvalid     JudgeCategory = "judge-invalid"
	JudgeBudget      JudgeCategory = "judge-budget"
	// JudgeExpired is the category of an evaluator that waited in vain until limits.scoreTimeout.
	JudgeExpired JudgeCategory = "judge-expired"
)

// JudgeError is the error of a judge that gave no verdict.
type JudgeError struct {
	Category JudgeCategory
	Message  string
}

// Error implements error.
func (e *JudgeError) Error() string { return fmt.Sprintf("%s: %s", e.Category, e.Message) }

// ErrLater says that the answer comes later: the evaluator has to wait, and is asked again when it is
// there.
var ErrLater = errors.New("the answer comes later")

// NotAsked says why no model can be asked here.
type NotAsked struct{ Reason string }

// Error implements error.
func (e *NotAsked) Error() string { return e.Reason }

// CostOf returns the cost of all verdicts together, nil if it is not known of one of them.
func CostOf(verdicts []JudgeCall) *float64 {
	sum := 0.0
	for _, c := range verdicts {
		if c.Usage == nil || !c.Usage.CostKnown() {
			return nil
		}
		sum = RoundCost(sum + *c.Usage.Cost)
	}
	return &sum
}
