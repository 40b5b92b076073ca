package tasks

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/input"
)

// fields reads the members of one table. It adds to package input the rules of task.toml: numbers
// as Python's pydantic takes them (2.0 is a whole number, "120" is a number), maps in the order of
// the file, tables.
type fields struct {
	*input.Fields
	r *input.Reader
}

func open(r *input.Reader, n *input.Node) fields { return fields{r.Object(n), r} }

// table returns an optional table.
func (f fields) table(name string) *input.Node { return f.Optional(name, input.Object) }

// tables returns the elements of an optional array of tables.
func (f fields) tables(name string) []*input.Node {
	n := f.Optional(name, input.Array)
	if n == nil {
		return nil
	}
	return n.Items
}

// either returns the value of a key that has two names. Both together are an error.
func (f fields) either(name, other string) *input.Node {
	a, b := f.table(name), f.table(other)
	if a != nil && b != nil {
		f.r.Errorf(a, "the file declares both %q and %q, which mean the same table; keep one of them", name, other)
	}
	if a == nil {
		return b
	}
	return a
}

// number returns an optional number.
func (f fields) number(name string) (v float64, n *input.Node) {
	n = f.Get(name)
	if n == nil || n.Kind == input.Null {
		return 0, nil
	}
	if n.Kind != input.Number && n.Kind != input.String {
		f.r.Errorf(n, "expected a number, got %s", n.Kind)
		return 0, nil
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(n.Text), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		f.r.Errorf(n, "expected a finite number, got %s", n.Text)
		return 0, nil
	}
	if n.Kind == input.String {
		f.r.Warnf(n, "expected a number, got the string %q, which is taken for one", n.Text)
	}
	return v, n
}

// seconds returns an optional duration.
func (f fields) seconds(name string, otherwise Seconds) Seconds {
	v, n := f.number(name)
	if n == nil {
		return otherwise
	}
	if v < 0 {
		f.r.Warnf(n, "expected seconds, got %s, which is taken for 0", n.Text)
		return 0
	}
	return Seconds(v)
}

// timeout returns the optional timeout_sec, which must be more than 0.
func (f fields) timeout(otherwise Seconds) Seconds {
	v, n := f.number("timeout_sec")
	if n == nil {
		return otherwise
	}
	if v <= 0 {
		f.r.Errorf(n, "expected more than 0 seconds, got %s", n.Text)
		return otherwise
	}
	return Seconds(v)
}

// whole returns an optional whole number.
func (f fields) whole(name string, otherwise int) int {
	v, n := f.number(name)
	if n == nil {
		return otherwise
	}
	if i, err := strconv.Atoi(strings.TrimSpace(n.Text)); err == nil {
		return i
	}
	if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		f.r.Errorf(n, "expected a whole number, got %s", n.Text)
		return otherwise
	}
	return int(v)
}

// float returns an optional number.
func (f fields) float(name string, otherwise float64) float64 {
	if v, n := f.number(name); n != nil {
		return v
	}
	return otherwise
}

// user returns an optional user name or number.
func (f fields) user() string {
	n := f.Get("user")
	if n == nil || n.Kind == input.Null {
		return ""
	}
	if _, err := strconv.Atoi(n.Text); n.Kind == input.Number && err != nil {
		f.r.Errorf(n, "expected a user's name or whole number, got %s", n.Text)
	} else if n.Kind != input.String && n.Kind != input.Number {
		f.r.Errorf(n, "expected a user's name or number, got %s", n.Kind)
	}
	return n.Text
}

// placeName matches the names of keys that say where a task is to run. It is compiled on first use:
// that takes too long for the start of every process.
var placeName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)image|docker|container|compose|podman|kube|sandbox|template|snapshot|provider|(^|[_-])(vm|ami|pod)($|[_-])`)
})

// places returns the unknown keys that seem to say where the task is to run. It is called when all
// others have been read.
func (f fields) places() (keys []string) {
	for _, m := range f.Unknown() {
		if placeName().MatchString(m.Key) {
			keys = append(keys, join(f.Node.Path, m.Key))
		}
	}
	return keys
}

// keyValues returns an optional table of strings, in the order of the file.
func (f fields) keyValues(name string) []KeyValue {
	n := f.table(name)
	if n == nil {
		return nil
	}
	var out []KeyValue
	for _, m := range n.Members {
		if m.Value.Kind != input.String {
			f.r.Errorf(m.Value, "expected a string, got %s", m.Value.Kind)
			continue
		}
		out = append(out, KeyValue{Name: m.Key, Value: m.Value.Text})
	}
	return out
}

// text returns an optional string, trimmed, that must not be blank if it is given.
func (f fields) text(name string) string {
	n := f.Optional(name, input.String)
	if n == nil {
		return ""
	}
	v := strings.TrimSpace(n.Text)
	if v == "" {
		f.r.Errorf(n, "expected a string that is not blank")
	}
	return v
}

// serviceName matches the names that Docker Compose allows for a service.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// service returns the optional name of a compose service.
func (f fields) service(otherwise string) string {
	n := f.Optional("service", input.String)
	if n == nil {
		return otherwise
	}
	v := strings.TrimSpace(n.Text)
	if !serviceName.MatchString(v) {
		f.r.Errorf(n, "expected the name of a compose service, got %q", n.Text)
	}
	return v
}
