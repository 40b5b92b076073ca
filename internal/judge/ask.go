package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/model"
)

// asked is one question while it is asked.
type asked struct {
	j *Judges
	p *model.Endpoint
	// api is the wire format of the question.
	api API
	q   eval.Question
	// call is the part of it that results will show.
	call eval.JudgeCall
	// base is the provider's URL, and key its key.
	base, key string
	// request is the last body that was sent. response is the last body that came back.
	request, response json.RawMessage
	// payer names the one for whom the question is asked; see [Judges.Of].
	payer string
	// batched is nil unless the question may go to a batch.
	batched *Batched
}

// ask answers a question from the cache, or else by its provider, and keeps a transcript.
func (j *ofRollout) ask(ctx context.Context, a *asked) (eval.Answer, error) {
	arguments, err := a.answer(ctx)
	if err == nil {
		arguments = j.o.Redact.JSON(arguments)
	}
	if errors.Is(err, eval.ErrLater) {
		return eval.Answer{Call: a.call}, err
	}
	var failed *eval.JudgeError
	if errors.As(err, &failed) {
		err = &eval.JudgeError{Category: failed.Category, Message: j.o.Redact.String(failed.Message)}
	}
	if keepErr := j.keep(a, arguments, err); keepErr != nil && err == nil {
		return eval.Answer{Call: a.call}, keepErr
	}
	failpoint.Hit("judge.answered")
	return eval.Answer{Arguments: arguments, Call: a.call}, err
}

// answer returns the arguments of the tool.
func (a *asked) answer(ctx context.Context) (json.RawMessage, error) {
	if err := a.expand(); err != nil {
		return nil, err
	}
	if a.batched != nil {
		arguments, decided, err := a.batched.arrived(a)
		if decided && err == nil {
			err = a.j.store(a, arguments)
		}
		if decided {
			return arguments, err
		}
	}
	entry, done, err := a.j.cached(ctx, a)
	if err != nil {
		return nil, ended(ctx, err)
	}
	defer done()
	if entry != nil {
		a.useEntry(entry)
		return entry.Arguments, nil
	}
	if a.batched != nil && a.batched.gathers(a.q) {
		return nil, a.batched.add(ctx, a)
	}
	arguments, err := a.call1(ctx)
	if err != nil {
		return nil, err
	}
	return arguments, a.j.store(a, arguments)
}

// useEntry takes the details of the call over from the answer in the cache.
func (a *asked) useEntry(entry *cacheEntry) {
	a.response = entry.Response
	if entry.PaidBy != "" && entry.PaidBy == a.paidBy() {
		a.call = entry.Call // the process that asked was killed before it had stored the verdict
		return
	}
	a.call.ModelReturned, a.call.SystemFingerprint, a.call.RequestID = entry.Call.ModelReturned,
		entry.Call.SystemFingerprint, entry.Call.RequestID
	if a.call.Usage != nil { // the answer in a batch was no verdict
		a.call.PaidTwice = true
		return
	}
	a.call.Cached = true
	if a.call.Usage = entry.Call.Usage; a.call.Usage != nil {
		a.call.Usage.Cost = new(float64) // it does not cost anything again
	}
}

// paidBy returns an id that tells a question apart from all others, equal ones included. The cache
// records with it which question has paid for an answer. It is empty if the question has no payer.
func (a *asked) paidBy() string {
	if a.payer == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d", a.payer, a.q.EvaluatorID, a.q.Sample)
}

// expand resolves URL and key of the provider.
func (a *asked) expand() error {
	values := agent.Options{Resolve: a.j.o.Resolve}
	missing := func(name string) error {
		return &eval.JudgeError{Category: eval.JudgeAuth,
			Message: fmt.Sprintf("the variable %s, which the provider %s needs, is not set here", name, a.p.Name)}
	}
	var unknown string
	if a.base, unknown = values.Expand(a.p.Config.BaseURL); unknown != "" {
		return missing(unknown)
	}
	key, _ := values.Expand(a.p.Config.Key)
	if a.key = strings.TrimSpace(key); a.key == "" && a.p.Config.Key != "" {
		return missing(strings.Join(agent.VariablesIn(a.p.Config.Key), " and "))
	}
	u, err := url.Parse(a.base)
	if err != nil || u.Host == "" {
		return &eval.JudgeError{Category: eval.JudgeAuth,
			Message: fmt.Sprintf("the base URL of the provider %s is no URL", a.p.Name)}
	}
	a.base, a.call.Host = strings.TrimSuffix(a.base, "/"), u.Host
	return nil
}

// call1 asks the provider, and asks once more if the answer is no valid call of the tool.
func (a *asked) call1(ctx context.Context) (json.RawMessage, error) {
	var last error
	for range 2 {
		got, err := a.exchange(ctx)
		if err != nil {
			return nil, err
		}
		var again bool
		if again, last = a.judge(&got); !again {
			return got.arguments, last
		}
	}
	return nil, last
}

// judge returns the error of an answer; nil if it is a verdict. again says that the model may do
// better if it is asked once more.
func (a *asked) judge(got *reply) (again bool, err error) {
	a.call.ModelReturned, a.call.SystemFingerprint = got.Model, got.Fingerprint
	switch {
	case got.Refusal != "":
		return false, failure(eval.JudgeRefused, "the model refuses to judge: %s", model.Short(got.Refusal))
	case got.Truncated:
		return false, failure(eval.JudgeTruncated, "the answer was cut off at its limit of tokens; maxTokens raises it")
	}
	if a.q.Embed {
		if err := a.q.Check(got.Embedding); err != nil {
			return true, failure(eval.JudgeInvalid, "the answer has no embedding: %v", err)
		}
		got.arguments, a.response = got.Embedding, nil // once is enough: it is long
		return false, nil
	}
	if err := got.choose(a.q.Tool.Name, !slices.Contains(a.call.Dropped, model.ParamTool)); err != nil {
		return true, failure(eval.JudgeInvalid, "the model has called the tool %s wrongly: %v", a.q.Tool.Name, err)
	}
	if got.arguments == nil {
		return true, failure(eval.JudgeInvalid, "the model has not called the tool %s", a.q.Tool.Name)
	}
	if err := a.q.Check(got.arguments); err != nil {
		return true, failure(eval.JudgeInvalid, "the model has called the tool %s wrongly: %v", a.q.Tool.Name, err)
	}
	return false, nil
}

func failure(category eval.JudgeCategory, format string, args ...any) error {
	return &eval.JudgeError{Category: category, Message: fmt.Sprintf(format, args...)}
}
