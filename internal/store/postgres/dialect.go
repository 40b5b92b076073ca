package postgres

import (
	"database/sql"
	"database/sql/driver"
	"strconv"
	"strings"
	"sync"
)

// The statements of the rules are in the SQL of SQLite, as far as PostgreSQL has the same or the
// schema adds it: there are functions max and min of two numbers, and json_each. What is left to
// translate are the parameters, whose types PostgreSQL wants to know, and CROSS JOIN, by which
// SQLite is told an order of tables.

// statement is a statement in PostgreSQL's SQL. args are the places of its parameters among those
// of the statement that it was made of, which may have some that it does not use.
type statement struct {
	text string
	args []int
}

// statements are those that were translated already.
var statements sync.Map

type untranslated struct{ text, types string }

// translate returns a statement for arguments of some types.
func translate(text string, args []driver.NamedValue) *statement {
	types := make([]byte, len(args))
	for i, a := range args {
		types[i] = typeOf(a.Value)
	}
	key := untranslated{text, string(types)}
	if s, ok := statements.Load(key); ok {
		return s.(*statement)
	}
	s, _ := statements.LoadOrStore(key, rewrite(text, types))
	return s.(*statement)
}

// null is a parameter that is null, of the type integer.
type null struct{}

// The types of parameters.
const (
	typeInteger = 'i'
	typeNumber  = 'f'
	typeBoolean = 'b'
	typeText    = 't'
	typeBytes   = 'y'
	typeUnknown = '?' // of a null whose type is that of its column
)

func typeOf(v any) byte {
	switch v.(type) {
	case int64, null:
		return typeInteger
	case float64:
		return typeNumber
	case bool:
		return typeBoolean
	case string:
		return typeText
	case []byte:
		return typeBytes
	}
	return typeUnknown
}

var casts = map[byte]string{
	typeInteger: "::bigint", typeNumber: "::float8", typeBoolean: "::boolean", typeText: "::text", typeBytes: "::bytea",
}

func rewrite(text string, types []byte) *statement {
	text = strings.ReplaceAll(text, "CROSS JOIN", "JOIN")
	s := &statement{}
	var out strings.Builder
	numbers := map[int]int{} // of the parameters, by their places
	next, quoted := 0, false
	for i := 0; i < len(text); i++ {
		if text[i] == '\'' {
			quoted = !quoted
		}
		if text[i] != '?' || quoted {
			out.WriteByte(text[i])
			continue
		}
		end := i + 1
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		place := next
		if n, err := strconv.Atoi(text[i+1 : end]); err == nil {
			place = n - 1
		}
		next = max(next, place+1)
		if numbers[place] == 0 {
			s.args = append(s.args, place)
			numbers[place] = len(s.args)
		}
		out.WriteString("$" + strconv.Itoa(numbers[place]))
		if place < len(types) {
			out.WriteString(casts[types[place]])
		}
		i = end - 1
	}
	s.text = out.String()
	return s
}

// values are the values of the parameters of a statement, of its arguments.
func (s *statement) values(args []driver.NamedValue) []driver.NamedValue {
	out := make([]driver.NamedValue, len(s.args))
	for i, place := range s.args {
		out[i] = driver.NamedValue{Ordinal: i + 1}
		if place < len(args) && args[place].Value != (any)(null{}) {
			out[i].Value = args[place].Value
		}
	}
	return out
}

// convert makes of an argument one of the values that typeOf knows. PostgreSQL's texts have neither
// zero bytes nor anything that is not UTF-8.
func convert(v any) (any, error) {
	if n, ok := v.(sql.NullInt64); ok && !n.Valid {
		return null{}, nil
	}
	out, err := driver.DefaultParameterConverter.ConvertValue(v)
	if text, ok := out.(string); ok {
		out = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	}
	return out, err
}
