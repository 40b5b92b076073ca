package judge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
)

// cacheEntry is an answer that is kept for equal questions.
type cacheEntry struct {
	Arguments json.RawMessage `json:"arguments"`
	// Call describes the call that gave the answer, to the question PaidBy.
	Call   eval.JudgeCall `json:"call"`
	PaidBy string         `json:"paidBy,omitempty"`
	// Response is the whole answer, without secrets.
	Response json.RawMessage `json:"response"`
	Time     time.Time       `json:"time"`
}

// cacheKey returns the name of an answer. It is the same only for questions that are equal to the
// last bit. It covers the provider's host, but not its key.
func cacheKey(a *asked) string {
	sample := a.q.Sample
	if a.q.Embed || a.q.Kept {
		sample = 0
	}
	data, _ := json.Marshal(struct { // nothing in it fails
		Version        string `json:"v"`
		API            API    `json:"api"`
		Host           string `json:"host"`
		Model          string `json:"model"`
		System, Prompt string
		Tool           string          `json:"tool"`
		Schema         json.RawMessage `json:"schema"`
		Temperature    *float64        `json:"temperature"`
		Seed           *int64          `json:"seed"`
		MaxTokens      int             `json:"maxTokens"`
		Sample         int             `json:"sample"`
	}{"v1", a.api, a.call.Host, a.q.Model, a.q.System, a.q.Prompt, a.q.Tool.Name, a.q.Tool.Schema,
		a.q.Temperature, a.q.Seed, a.q.MaxTokens, sample})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (j *Judges) cacheFile(a *asked) string {
	key := cacheKey(a)
	return filepath.Join(j.o.CacheDir, key[:2], key[2:]+".json")
}

// cached finds the answer to a question that was asked before; nil if there is none. While the same
// question is being asked, it waits for that answer. done lets the next caller go on.
func (j *Judges) cached(ctx context.Context, a *asked) (entry *cacheEntry, done func(), err error) {
	if j.o.Config.NoCache && !a.q.Kept {
		return nil, func() {}, nil
	}
	file := j.cacheFile(a)
	for {
		j.mu.Lock()
		other := j.asking[file]
		if other == nil {
			break
		}
		j.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	mine := make(chan struct{})
	j.asking[file] = mine
	j.mu.Unlock()
	done = func() {
		j.mu.Lock()
		delete(j.asking, file)
		j.mu.Unlock()
		close(mine)
	}
	return readCache(file, a.q.Check), done, nil
}

// readCache reads an answer. It returns nil if there is none, it cannot be read, or it does not
// answer the question.
func readCache(file string, check func(json.RawMessage) error) *cacheEntry {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var entry cacheEntry
	if json.Unmarshal(data, &entry) != nil || check(entry.Arguments) != nil {
		return nil
	}
	return &entry
}

// store writes an answer before it is returned, so that a process that is killed later need not pay
// again.
func (j *Judges) store(a *asked, arguments json.RawMessage) error {
	if j.o.Config.NoCache && !a.q.Kept {
		return nil
	}
	data, err := json.Marshal(cacheEntry{Arguments: arguments, Call: a.call, PaidBy: a.paidBy(),
		Response: orText(a.response), Time: j.o.Now().UTC()})
	if err != nil {
		return err
	}
	if err := write(j.cacheFile(a), j.o.Redact.JSON(data)); err != nil {
		return err
	}
	failpoint.Hit("judge.cached")
	return nil
}

// orText returns a JSON value unchanged, and anything else as a JSON string.
func orText(raw []byte) json.RawMessage {
	if json.Valid(raw) {
		return raw
	}
	text, _ := json.Marshal(string(raw)) // a string always marshals
	return text
}

func write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(file, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
