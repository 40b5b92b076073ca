package modelagent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// FileJournal has the conversation of an attempt, one step a line. A line is durable before the
// next step begins, so that another process goes on where this one was killed.
const FileJournal = "conversation.jsonl"

// The kinds of steps.
const (
	stepBegin     = "begin"     // the first messages
	stepAnswer    = "answer"    // the model has answered
	stepAsk       = "ask"       // the next answer is asked for in a batch
	stepIntent    = "intent"    // a call is about to be run
	stepResult    = "result"    // a call has its result
	stepWait      = "wait"      // a call waits for a person, or for what it has started
	stepApproved  = "approved"  // a person has allowed a call
	stepSuspend   = "suspend"   // the segment ends, because calls wait
	stepUser      = "user"      // the user who is played has said something, or may not say more
	stepCounted   = "counted"   // the attempt has failed, and what the user has said until here is in its counts
	stepSummarise = "summarise" // the model is to be asked for a summary of the oldest answers
	stepCut       = "cut"       // the oldest answers are left out from now on
	stepEnd       = "end"       // the attempt has failed, and nobody goes on with it; or a limit has ended it
)

// step is one line of a journal.
type step struct {
	Step string `json:"step"`
	// System and Items are what the conversation begins with. Items of an answer are those that it
	// adds to the conversation, as the provider has sent them.
	System string            `json:"system,omitempty"`
	Items  []json.RawMessage `json:"items,omitempty"`
	// FileBytes is how many bytes of the first items are data of files.
	FileBytes int `json:"fileBytes,omitempty"`
	// Tools are those of MCP servers with which the conversation begins. The model has the same ones to
	// its end, whatever the servers list later.
	Tools []mcpTool `json:"tools,omitempty"`
	// Answer is what the answer means.
	Answer *answered `json:"answer,omitempty"`
	// Call is the number of a call in its answer, Result what it gave.
	Call   int     `json:"call,omitempty"`
	Result *result `json:"result,omitempty"`
	// Wait is what a call waits for.
	Wait *waiting `json:"wait,omitempty"`
	// Limit is the limit that has ended the attempt. Whoever goes on ends in the same way.
	Limit *fault.Fault `json:"limit,omitempty"`
	// Answers is how many answers are left out. Summary is that of them, if there is one.
	Answers int    `json:"answers,omitempty"`
	Summary string `json:"summary,omitempty"`
	// User is what the user has said. Over is why the conversation is over, if they say nothing more.
	User *said  `json:"user,omitempty"`
	Over string `json:"over,omitempty"`
	// Segment is the number of the segment that a suspension ends.
	Segment int `json:"segment,omitempty"`
}

// waiting is what a call waits for.
type waiting struct {
	// Interrupt is the id under which the rollout waits.
	Interrupt string `json:"interrupt"`
	// CallID is the id under which the ledger has what the call has started. It is empty for a call
	// that a person has to allow.
	CallID string `json:"callId,omitempty"`
	// Asked is what the server has asked a person, without secrets.
	Asked *wait.Input `json:"asked,omitempty"`
	// fresh says that this segment has made the call wait: nothing that was delivered to it is for that.
	fresh bool
}

// answered is an answer of the model, independent of the wire format.
type answered struct {
	Text      string `json:"text,omitempty"`
	Calls     []call `json:"calls,omitempty"`
	Stop      string `json:"stop,omitempty"`
	Refusal   string `json:"refusal,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Full says that the conversation is longer than contextTokens with it.
	Full bool `json:"full,omitempty"`
}

// call is a call of a tool. Arguments may be any text.
type call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// result is the result of a call.
type result struct {
	Text string `json:"text"`
	// Wrong says that the call itself was wrong, and nothing was run. Failed says that the tool has
	// failed, or that a person has not allowed the call.
	Wrong  bool `json:"wrong,omitempty"`
	Failed bool `json:"failed,omitempty"`
	// CallID is the id of the call in the ledger, if it is there.
	CallID string `json:"callId,omitempty"`
	// Mock is the place of the mock that was played in place of the call.
	Mock      string    `json:"mock,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	Ms        int64     `json:"ms"`
}

// journal is an open journal.
type journal struct{ file *os.File }

// openJournal makes the journal of an attempt, with the steps of an earlier one.
func openJournal(dir string, before []step) (*journal, error) {
	path := filepath.Join(dir, FileJournal)
	err := durable.WriteFile(path, 0o600, func(w io.Writer) error {
		for _, one := range before {
			line, err := jsonobj.Marshal(one)
			if err != nil {
				return err
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return &journal{file}, err
}

// add adds a step and makes it durable.
func (j *journal) add(one step) error {
	line, err := jsonobj.Marshal(one)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	return errors.Join(err, j.file.Sync())
}

func (j *journal) close() error { return j.file.Close() }

// readJournal reads the steps of an attempt, without a last line that is torn; nil if there are
// none.
func readJournal(dir string) (steps []step, err error) {
	data, err := os.ReadFile(filepath.Join(dir, FileJournal))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	lines := bufio.NewReader(bytes.NewReader(data))
	for {
		line, err := lines.ReadBytes('\n')
		var one step
		if err != nil || json.Unmarshal(line, &one) != nil {
			return steps, nil //nolint:nilerr // the line is torn: its step has not been made
		}
		steps = append(steps, one)
	}
}

// goesOn returns the newest of the folders whose attempt has a conversation, if that has not failed.
func goesOn(dirs []string) string {
	for _, dir := range dirs {
		switch steps, err := readJournal(dir); {
		case err != nil:
			return ""
		case len(steps) > 0 && steps[len(steps)-1].Step == stepEnd && steps[len(steps)-1].Limit == nil:
			return ""
		case len(steps) > 0:
			return dir
		}
	}
	return ""
}
