package evaluator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/eval"
)

// MessageOf returns message and category of a judge's error.
func MessageOf(err error) (string, eval.JudgeCategory) {
	var failed *eval.JudgeError
	if errors.As(err, &failed) {
		return failed.Message, failed.Category
	}
	return err.Error(), eval.JudgeInvalid
}

// Fingerprint is the same for questions that differ only in the material to be judged.
func Fingerprint(q eval.Question, models ...string) string {
	data, _ := json.Marshal(struct { // nothing in it fails
		Template    string
		Tool        eval.Tool
		Models      []string
		Temperature *float64
		Seed        *int64
		MaxTokens   int
	}{q.TemplateHash, q.Tool, models, q.Temperature, q.Seed, q.MaxTokens})
	return Hash(string(data))
}

// Hash returns a digest of texts; the places where they end count.
func Hash(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(text), text) // a hash takes everything
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// NoModel returns the outcome of a judge without a model.
func NoModel() Outcome {
	return Outcome{Failure: &eval.NotAsked{Reason: "an LLM judge needs a model, and there is none here"}}
}
