package agent

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// storedHead and storedTail have the keys of a stored entry before and after those of its type. The
// digest of a plan depends on their order.
type storedHead struct {
	Name    string            `json:"name"`
	Type    string            `json:"type"`
	Command []string          `json:"command,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Extends string            `json:"extends,omitempty"`
	Model   *Model            `json:"model,omitempty"`
}

type storedTail struct {
	ResumeWhen    ResumeWhen    `json:"resumeWhen,omitempty"`
	AcceptsFaults bool          `json:"acceptsFaults"`
	Timeout       wait.Duration `json:"timeout,omitzero"`
	Fresh         bool          `json:"fresh,omitempty"`
	WorkerTags    []string      `json:"workerTags,omitempty"`
}

// MarshalJSON makes one object of the keys that all entries have and those of the entry's type.
func (e Entry) MarshalJSON() ([]byte, error) {
	return jsonobj.Join(storedHead{e.Name, e.Type, e.Command, e.Cwd, e.Env, e.Extends, e.Model}, e.Settings,
		storedTail{e.ResumeWhen, e.AcceptsFaults, e.Timeout, e.Fresh, e.WorkerTags})
}

// UnmarshalJSON reads a stored entry.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var head storedHead
	var tail storedTail
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &tail); err != nil {
		return err
	}
	*e = Entry{
		Name: head.Name, Type: head.Type, Command: head.Command, Cwd: head.Cwd, Env: head.Env,
		Extends: head.Extends, Model: head.Model,
		ResumeWhen: tail.ResumeWhen, AcceptsFaults: tail.AcceptsFaults, Timeout: tail.Timeout,
		Fresh: tail.Fresh, WorkerTags: tail.WorkerTags,
	}
	if settings := e.typeOf().Settings; settings != nil {
		e.Settings = settings()
		return json.Unmarshal(data, e.Settings)
	}
	return nil
}
