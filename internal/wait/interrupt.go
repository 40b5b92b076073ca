package wait

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

const (
	// placeholderID is the id that LangGraph gives to an interrupt that has none.
	placeholderID = "placeholder-id"
	// maxTriggers is how many interrupts one suspension may have, and how many triggers in all.
	maxTriggers = 1000
	// maxID is how long an interrupt's id may be.
	maxID = 512
)

const shapes = "expected LangGraph interrupts, an object of ids and values, or one value"

// ParseInterrupts reads the value of the key __interrupt__ in every shape in which frameworks write
// it: a list of LangGraph's interrupt objects of either generation, one of them alone, UiPath's
// object of ids and values, a plain value, or a list of plain values. An interrupt without an id
// gets LangGraph's placeholder. Of equal ids in one list the first stays as it is and the others
// get "#" and their index. The error says where in the value it is and what was expected.
func ParseInterrupts(v json.RawMessage) ([]Interrupt, error) {
	if err := jsonvalue.Check(v); err != nil {
		return nil, fmt.Errorf("__interrupt__: %w", err)
	}
	raw, err := split(v)
	if err != nil {
		return nil, err
	}
	out, total, used := make([]Interrupt, 0, len(raw)), 0, make(map[string]bool, len(raw))
	for i, r := range raw {
		specs, err := ParseSpecs(r.value)
		if err != nil {
			return nil, fmt.Errorf("__interrupt__%s: %w", r.where, err)
		}
		if total += len(specs); total > maxTriggers {
			return nil, fmt.Errorf(
				"__interrupt__%s: expected at most %d triggers in one suspension, got more", r.where, maxTriggers)
		}
		id := r.id
		for used[id] {
			id += "#" + strconv.Itoa(i)
		}
		used[id] = true
		out = append(out, Interrupt{ID: id, Specs: specs})
	}
	return out, nil
}

// rawInterrupt is an interrupt whose value is not yet understood.
type rawInterrupt struct {
	id    string
	value json.RawMessage
	where string
}

func split(v json.RawMessage) ([]rawInterrupt, error) {
	switch jsonvalue.KindOf(v) {
	case 'n':
		return nil, errors.New("__interrupt__: " + shapes + ", got null")
	case '[':
		return splitList(v)
	case '{':
		return splitObject(v)
	}
	return []rawInterrupt{{placeholderID, v, ""}}, nil
}

func splitList(v json.RawMessage) ([]rawInterrupt, error) {
	items, err := jsonvalue.Elements(v, maxTriggers)
	if err != nil {
		return nil, fmt.Errorf("__interrupt__: %w", err)
	}
	if len(items) == 0 {
		return nil, errors.New("__interrupt__: " + shapes + ", got an empty list")
	}
	out := make([]rawInterrupt, len(items))
	for i, item := range items {
		where := "[" + strconv.Itoa(i) + "]"
		out[i] = rawInterrupt{placeholderID, item, where}
		if o, ok := jsonvalue.ParseObject(item); ok && isInterrupt(o) {
			if out[i], err = fromInterrupt(o, where); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func splitObject(v json.RawMessage) ([]rawInterrupt, error) {
	o, _ := jsonvalue.ParseObject(v)
	switch {
	case len(o) == 0:
		return nil, errors.New("__interrupt__: " + shapes + ", got an empty object")
	case isInterrupt(o):
		one, err := fromInterrupt(o, "")
		return []rawInterrupt{one}, err
	case !isMap(o):
		return []rawInterrupt{{placeholderID, v, ""}}, nil
	case len(o) > maxTriggers:
		return nil, fmt.Errorf("__interrupt__: expected at most %d interrupts, got %d", maxTriggers, len(o))
	}
	out := make([]rawInterrupt, len(o))
	for i, m := range o {
		where := "[" + strconv.Quote(jsonvalue.Excerpt([]byte(m.Key))) + "]"
		if err := checkID(m.Key, where); err != nil {
			return nil, err
		}
		out[i] = rawInterrupt{m.Key, m.Value, where}
	}
	return out, nil
}

// isInterrupt tells a LangGraph interrupt, which has a value and nothing but the fields of one. One with an id
// may say of which schema an answer is expected, which nobody checks.
func isInterrupt(o jsonvalue.Object) bool {
	found := false
	for _, m := range o {
		switch m.Key {
		case "value":
			found = true
		case "id", "interrupt_id", "resumable", "ns", "when":
		case "schema", "response_schema":
			if _, ok := o.Get("id"); !ok {
				return false
			}
		default:
			return false
		}
	}
	return found
}

// fromInterrupt finds the id: "id" since LangGraph 0.6, before it the hash of "ns".
func fromInterrupt(o jsonvalue.Object, where string) (rawInterrupt, error) {
	value, _ := o.Get("value")
	out := rawInterrupt{placeholderID, value, where + ".value"}
	for _, key := range []string{"id", "interrupt_id"} {
		v, ok := o.Get(key)
		if !ok || jsonvalue.KindOf(v) == 'n' {
			continue
		}
		if jsonvalue.KindOf(v) != '"' {
			return out, fmt.Errorf("__interrupt__%s.%s: expected a string, got %s", where, key, jsonvalue.KindName(v))
		}
		if id := jsonvalue.String(v); id != "" {
			out.id = id
			return out, checkID(id, where+"."+key)
		}
	}
	if ns, ok := o.Get("ns"); ok && jsonvalue.KindOf(ns) != 'n' {
		var path []string
		if err := json.Unmarshal(ns, &path); err != nil {
			return out, fmt.Errorf("__interrupt__%s.ns: expected an array of strings", where)
		}
		out.id = interruptID(path)
	}
	return out, nil
}

// interruptID is how LangGraph makes an id from a checkpoint namespace.
func interruptID(ns []string) string {
	sum := xxh3.HashString128(strings.Join(ns, "|")).Bytes()
	return hex.EncodeToString(sum[:])
}

func checkID(id, where string) error {
	if id == "" || len(id) > maxID {
		return fmt.Errorf("__interrupt__%s: expected an id of 1 to %d bytes, got %d", where, maxID, len(id))
	}
	return nil
}

// likeID tells an interrupt's id from the name of a field: a hash, a UUID, the placeholder, or a
// word with a separator and a digit such as "int-1".
var likeID = regexp.MustCompile(`^([0-9a-f]{32}|placeholder-id.*|.*[0-9].*[-:#|/].*|.*[-:#|/].*[0-9].*)$`)

// isMap tells an object of ids and values from a plain value that is an object. It is one if every
// key looks like an id, or if every value is one of UiPath's models and the object itself is none.
func isMap(o jsonvalue.Object) bool {
	if m, _, err := recognise(o); m != nil || err != nil {
		return false
	}
	keys, models := true, true
	for _, m := range o {
		keys = keys && likeID.MatchString(m.Key)
		value, ok := jsonvalue.ParseObject(m.Value)
		found, _, err := recognise(value)
		models = models && ok && (found != nil || err != nil)
	}
	return keys || models
}

// Names returns what people know a wait by, the best first: the process, the title of the question,
// the application that asks. It returns none if the payload says nothing of the kind.
func Names(payload json.RawMessage) (out []string) {
	var asked struct {
		Process string `json:"process_name"`
		Title   string `json:"title"`
		App     string `json:"app_name"`
		Name    string `json:"name"`
	}
	_ = json.Unmarshal(payload, &asked) // it may be anything
	for _, name := range []string{asked.Process, asked.Title, asked.App, asked.Name} {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// WithoutEffect is the member of a payload that says that nothing follows from an approval: what is
// approved cannot be told from other calls. "note" says why.
const WithoutEffect = "withoutEffect"

// ApprovalNote says what is wrong with approving what a payload asks; empty if nothing is.
func ApprovalNote(payload json.RawMessage) string {
	var asked struct {
		WithoutEffect bool   `json:"withoutEffect"`
		Note          string `json:"note"`
	}
	if json.Unmarshal(payload, &asked) != nil || !asked.WithoutEffect {
		return "" // it may be anything
	}
	return fmt.Sprintf("an approval lets nothing through, because %s; it will ask again", asked.Note)
}
