package serve

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// AuditFile is the name of the audit log in the folder of a store.
const AuditFile = "audit.jsonl"

// Audit is a log of changes, with their callers and their outcomes, as JSON Lines.
type Audit struct {
	mu sync.Mutex
	w  io.Writer
}

// NewAudit writes the log to w.
func NewAudit(w io.Writer) *Audit { return &Audit{w: w} }

// OpenAudit opens the audit log of a store, which only its owner can read. The caller closes the
// file.
func OpenAudit(storeDir string) (*Audit, io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(storeDir, AuditFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return NewAudit(f), f, nil
}

// AuditLine is one line of the log.
type AuditLine struct {
	Time time.Time `json:"time"`
	// Action is run, cancel, deliver, post (an event of a job), token.new or token.revoke. Object is
	// what it was done to.
	Action string `json:"action"`
	Object string `json:"object,omitempty"`
	// Token and Name identify the token that was used; empty on the command line.
	Token string `json:"token,omitempty"`
	Name  string `json:"name,omitempty"`
	// Remote is the address of the caller.
	Remote string `json:"remote,omitempty"`
	// Status is the status of the response.
	Status int `json:"status,omitempty"`
}

// Write adds a line.
func (a *Audit) Write(line AuditLine) error {
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.w.Write(append(data, '\n'))
	return err
}

func (a *Audit) write(now time.Time, x *exchange, action string) error {
	return a.Write(AuditLine{Time: now.UTC(), Action: action, Object: x.object, Token: x.identity.ID,
		Name: x.identity.Name, Remote: x.remote, Status: x.status})
}
