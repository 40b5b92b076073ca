package wait

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// These names go with a job that is started. They say until when somebody waits for it, under which
// id, and in which trace. The names of the headers are those of MCP Mesh and of W3C Trace Context.
const (
	headerTimeout = "X-Mesh-Timeout" // whole seconds, never 0
	headerJobID   = "X-Mesh-Job-Id"
	headerTrace   = "traceparent"
	// DeadlineVar is the variable with the deadline of a command that is a job, in RFC 3339.
	DeadlineVar = "EVALRUN_DEADLINE"
)

// errNoTimeLeft is the error of a start for which whoever waits has no time left.
var errNoTimeLeft = errors.New("the job was not started: the time that whoever waits for it has left is over")

// TimeLeft is how many seconds the job may take: what was asked for, if that is not 0, but not more
// than is left until its deadline. 0 means as long as it likes. Nothing is started when no time is
// left.
func (j Job) TimeLeft(now time.Time, asked time.Duration) (seconds int64, err error) {
	left := asked
	if !j.Deadline.IsZero() {
		rest := j.Deadline.Sub(now)
		if rest <= 0 {
			return 0, &RetryError{Err: errNoTimeLeft, NotStarted: true}
		}
		if left <= 0 || rest < left {
			left = rest
		}
	}
	if left <= 0 {
		return 0, nil
	}
	return max(int64(left/time.Second), 1), nil
}

// Headers go with the request that starts the job.
func (j Job) Headers(now time.Time) (map[string]string, error) {
	left, err := j.TimeLeft(now, 0)
	if err != nil {
		return nil, err
	}
	out := map[string]string{headerJobID: j.TriggerID, headerTrace: j.Traceparent()}
	if left > 0 {
		out[headerTimeout] = strconv.FormatInt(left, 10)
	}
	return out, nil
}

// CallHeaders go with the call of a tool of a rollout, which may start a job by itself. There is no
// job id among them: an agent of MCP Mesh would take it for that of a job which it is to work on.
func CallHeaders(rolloutID string, deadline, now time.Time) (map[string]string, error) {
	out, err := Job{TriggerID: rolloutID, RolloutID: rolloutID, Deadline: deadline}.Headers(now)
	delete(out, headerJobID)
	return out, err
}

// Environ goes with a command that is the job: its id, the trace, and the deadline, which unlike a
// number of seconds stays right however long the command takes to begin.
func (j Job) Environ() map[string]string {
	out := map[string]string{"EVALRUN_JOB_ID": j.TriggerID, "TRACEPARENT": j.Traceparent()}
	if !j.Deadline.IsZero() {
		out[DeadlineVar] = j.Deadline.UTC().Format(time.RFC3339Nano)
	}
	return out
}

// Traceparent makes the rollout the trace and the trigger its span.
func (j Job) Traceparent() string {
	return traceparent(j.RolloutID, SpanID(j.TriggerID))
}

// AgentTraceparent goes with an agent: it makes an attempt of a segment the parent of what the
// agent does.
func AgentTraceparent(rolloutID string, segment, attempt int) string {
	return traceparent(rolloutID, SegmentSpanID(rolloutID, segment, attempt))
}

func traceparent(rolloutID string, span [8]byte) string {
	trace := TraceID(rolloutID)
	return "00-" + hex.EncodeToString(trace[:]) + "-" + hex.EncodeToString(span[:]) + "-01"
}

// TraceID is the trace of a rollout, as W3C Trace Context has it: the rollout's id, which is 16
// bytes.
func TraceID(rolloutID string) (id [16]byte) {
	b, err := hex.DecodeString(strings.ReplaceAll(rolloutID, "-", ""))
	if err != nil || len(b) != 16 || [16]byte(b) == id {
		sum := sha256.Sum256([]byte(rolloutID))
		b = sum[:16]
	}
	return [16]byte(b)
}

// SpanID is the span of something in that trace which has an id: of the rollout itself, or of what
// it waits for.
func SpanID(id string) [8]byte {
	sum := sha256.Sum256([]byte(id))
	return [8]byte(sum[:8])
}

// SegmentSpanID is the span of an attempt of a segment.
func SegmentSpanID(rolloutID string, segment, attempt int) [8]byte {
	return SpanID(rolloutID + "/segments/" + strconv.Itoa(segment) + "." + strconv.Itoa(attempt))
}
