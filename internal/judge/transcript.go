package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/evalrun/evalrun/eval"
)

// transcript is the record of a question that is kept beside its rollout, for people.
type transcript struct {
	Call eval.JudgeCall `json:"call"`
	// Request is the body that was sent; null if the answer was cached. Then System and Prompt have
	// the texts that would have been sent.
	Request   json.RawMessage `json:"request"`
	System    string          `json:"system,omitempty"`
	Prompt    string          `json:"prompt,omitempty"`
	Response  json.RawMessage `json:"response"`
	Arguments json.RawMessage `json:"arguments"` // null also for an embedding
	Error     string          `json:"error,omitempty"`
}

// Call returns how a question was answered whose transcript is in a folder; nil if there is none.
func Call(dir, evaluatorID string, sample int) *eval.JudgeCall {
	var t transcript
	data, err := os.ReadFile(filepath.Join(dir, fileName(eval.Question{EvaluatorID: evaluatorID, Sample: sample})))
	if err != nil || json.Unmarshal(data, &t) != nil {
		return nil
	}
	return &t.Call
}

// keep writes the transcript of question and answer, without secrets.
func (j *ofRollout) keep(a *asked, arguments json.RawMessage, err error) error {
	if j.dir == "" {
		return nil
	}
	if a.q.Embed {
		arguments = nil // they are in the cache
	}
	t := transcript{Call: a.call, Request: a.request, Response: json.RawMessage("null"), Arguments: arguments}
	if len(a.response) > 0 {
		t.Response = orText(a.response)
	}
	if a.request == nil {
		t.System, t.Prompt = a.q.System, a.q.Prompt
	}
	if err != nil {
		t.Error = err.Error()
	}
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return write(filepath.Join(j.dir, fileName(a.q)), j.o.Redact.JSON(data))
}

// fileName returns the name of a question's file. It is made from the evaluator's id, which may be
// any text, and the number of the question.
func fileName(q eval.Question) string {
	const most = 100
	name := url.PathEscape(q.EvaluatorID)
	if len(name) > most {
		sum := sha256.Sum256([]byte(q.EvaluatorID))
		name = name[:most] + "-" + hex.EncodeToString(sum[:8])
	}
	return name + "." + strconv.Itoa(q.Sample) + ".json"
}
