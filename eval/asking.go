package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// messageOf takes an error of a judge apart.
func messageOf(err error) (string, JudgeCategory) {
	var failed *JudgeError
	if errors.As(err, &failed) {
		return failed.Message, failed.Category
	}
	return err.Error(), JudgeInvalid
}

// fingerprint is the same for questions that differ only in what is judged.
func fingerprint(q Question, models ...string) string {
	data, _ := json.Marshal(struct { // nothing in it fails
		Template    string
		Tool        Tool
		Models      []string
		Temperature *float64
		Seed        *int64
		MaxTokens   int
	}{q.TemplateHash, q.Tool, models, q.Temperature, q.Seed, q.MaxTokens})
	return hashOf(string(data))
}

func hashOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(text), text) // a hash takes everything
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
