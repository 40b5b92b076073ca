package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// UsageOf says what a rollout has used of models. It is empty if nothing is known.
func UsageOf(u *schemas.Usage) string {
	if u == nil || u.Total == nil {
		return ""
	}
	s := summary.UsageSummary{Rollouts: 1, Total: *u.Total, Models: u.Models}
	return "tokens: " + tokensSentence(&s, 1) + "; cost: " + costSentence(&s)
}

func tokensSentence(u *summary.UsageSummary, rollouts int) string {
	text := grouped(u.Total.InputTokens) + " input"
	if u.Total.CachedInputTokens > 0 {
		text += fmt.Sprintf(" (%s cached)", grouped(u.Total.CachedInputTokens))
	}
	text += ", " + grouped(u.Total.OutputTokens) + " output"
	if u.TokensPerEvaluation != nil {
		text += fmt.Sprintf("; %s an evaluation", grouped(int64(*u.TokensPerEvaluation+0.5)))
	}
	if n := u.Total.Unmetered; n > 0 {
		text += fmt.Sprintf("; missing: those of %s", count(n, "call"))
	}
	if u.Rollouts < rollouts {
		text += fmt.Sprintf("; known of %d of %s", u.Rollouts, count(rollouts, "rollout"))
	}
	return text
}

func costSentence(u *summary.UsageSummary) string {
	text := "unknown"
	switch {
	case u.Total.CostKnown():
		text = dollars(*u.Total.Cost)
	case u.Total.Cost != nil:
		text = "at least " + dollars(*u.Total.Cost)
	}
	if u.CostPerEvaluation != nil {
		text += fmt.Sprintf("; %s an evaluation", dollars(*u.CostPerEvaluation))
	}
	if names := unpriced(u.Models); len(names) > 0 {
		text += "; no price of " + strings.Join(names, ", ")
	}
	return text
}

// unpriced names the models whose cost is not known.
func unpriced(models []eval.Usage) (names []string) {
	for _, u := range models {
		switch {
		case u.CostKnown() || u.Tokens() == 0:
		case u.Model == "":
			names = append(names, "a model without a name")
		default:
			names = append(names, redact.Line(u.Model))
		}
	}
	return names
}

// dollars writes a cost in cents, or a small one with four significant digits.
func dollars(cost float64) string {
	if cost >= 10 || cost == 0 {
		return "$" + strconv.FormatFloat(cost, 'f', 2, 64)
	}
	text := strconv.FormatFloat(cost, 'g', 4, 64)
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	return "$" + text
}

// grouped writes a number with commas between its thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// UsageFigures returns the tokens and the cost that an agent has used, and the cost of an
// evaluation, with two significant digits. All are empty if nothing is known. "≥" means that a part
// is missing.
func UsageFigures(u *summary.UsageSummary) (tokens, cost, each string) {
	if u == nil || u.Rollouts == 0 {
		return "", "", ""
	}
	atLeast := func(known bool) string {
		if known {
			return ""
		}
		return "≥ "
	}
	tokens = atLeast(u.Total.Unmetered == 0) + grouped(u.Total.Tokens())
	if u.Total.Cost != nil {
		cost = atLeast(u.Total.CostKnown()) + twoDigits(*u.Total.Cost)
	}
	if u.CostPerEvaluation != nil {
		each = twoDigits(*u.CostPerEvaluation)
	}
	return tokens, cost, each
}

// twoDigits writes a cost with two significant digits, or in whole dollars.
func twoDigits(cost float64) string {
	if cost >= 100 || cost == 0 {
		return "$" + strconv.FormatFloat(cost, 'f', 0, 64)
	}
	v, err := strconv.ParseFloat(strconv.FormatFloat(cost, 'g', 2, 64), 64)
	if err != nil {
		return dollars(cost)
	}
	return "$" + strconv.FormatFloat(v, 'f', -1, 64)
}
