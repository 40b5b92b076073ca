package rules

import (
	"database/sql"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// micros is a time as the store keeps it; the zero time is null.
func micros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func fromMicros(v sql.NullInt64) time.Time {
	if !v.Valid {
		return time.Time{}
	}
	return time.UnixMicro(v.Int64).UTC()
}

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }

// marshal gives JSON for a column. nil is null, also as a pointer or slice.
func marshal(v any) any {
	switch v := v.(type) {
	case *fault.Fault:
		if v == nil {
			return nil
		}
	case []store.File:
		if len(v) == 0 {
			return nil
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic("store: " + err.Error()) // only values made in this package come here
	}
	return data
}

// decode reads a JSON column.
func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return unreadableError{err}
	}
	return nil
}

func unmarshalFault(data []byte) (*fault.Fault, error) {
	if data == nil {
		return nil, nil
	}
	f := new(fault.Fault)
	return f, decode(data, f)
}

// document is a JSON column that is never null.
func document(data json.RawMessage) []byte {
	if data == nil {
		return []byte("null")
	}
	return data
}

// raw is a JSON column; nil is null.
func raw(data json.RawMessage) any {
	if data == nil {
		return nil
	}
	return []byte(data)
}
