package judge

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/model"
)

// exchange asks the provider once, and repeats the request until it is answered, as long as that
// may help.
func (a *asked) exchange(ctx context.Context) (reply, error) {
	c := &model.Call{Model: a.q.Model, API: a.api, Base: a.base, Key: a.key, Body: a.body, Reserve: a.reserve}
	err := a.p.Ask(ctx, c)
	if c.Request != nil {
		a.request, a.call.Dropped = c.Request, c.Dropped
	}
	if c.Response != nil {
		a.response = c.Response
	}
	if c.RequestID != "" {
		a.call.RequestID = c.RequestID
	}
	a.call.Attempts, a.call.LatencyMs = a.call.Attempts+c.Attempts, a.call.LatencyMs+c.LatencyMs
	if err != nil {
		return reply{}, ended(ctx, judgeError(err))
	}
	return a.read()
}

func (a *asked) body(drop model.Dropped) (json.RawMessage, error) {
	return json.Marshal(bodies[a.api](a.q, drop))
}

// reserve reserves a request of the budget.
func (a *asked) reserve(ctx context.Context) error {
	_, priced := a.j.o.Config.Prices.Of(a.q.Model)
	return a.j.budget.take(ctx, priced)
}

// categories maps kinds of errors to their categories.
var categories = map[model.Kind]eval.JudgeCategory{
	model.Invalid: eval.JudgeInvalid, model.Unavailable: eval.JudgeUnavailable, model.Auth: eval.JudgeAuth,
	model.NoModel: eval.JudgeModel, model.RateLimit: eval.JudgeRateLimit,
}

// judgeError returns the error of a judge for one of a model, and any other error as it is.
func judgeError(err error) error {
	var failed *model.Error
	if errors.As(err, &failed) {
		return &eval.JudgeError{Category: categories[failed.Kind], Message: failed.Message}
	}
	return err
}

// read reads an answer, and counts its usage.
func (a *asked) read() (reply, error) {
	got, err := a.api.Read(a.response)
	if err != nil {
		return reply{}, nil //nolint:nilerr // garbage is treated as an answer without a call: the question is asked again
	}
	if got.Usage != nil {
		got.Usage.Model = a.q.Model
		used := a.j.o.Config.Prices.Priced(*got.Usage)
		if a.call.Batch != "" && a.call.Attempts == 0 && used.Cost != nil {
			*used.Cost *= a.j.o.Config.Batch.PriceFactor
		}
		if a.call.Cached {
			used.Cost = new(float64)
		} else {
			a.j.budget.used(used)
		}
		if a.call.Usage != nil {
			used, a.call.PaidTwice = a.call.Usage.Plus(used), true
		}
		a.call.Usage = &used
	}
	return reply{Reply: got}, nil
}

// ended returns the error of a question whose context has ended.
func ended(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) && errors.Is(err, ctx.Err()) {
		return failure(eval.JudgeTimeout, "the judge has not answered within limits.evaluatorTimeout")
	}
	return err
}
