package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/evalrun/evalrun/internal/input"
)

// openParquet opens a Parquet file. The line of a row is its number, from 1 on.
func (f *file) openParquet() error {
	size, err := io.Copy(f.digest, f.file)
	if err != nil {
		return err
	}
	var rows *parquet.GenericReader[any]
	var root parquet.Node
	err = undamaged(func() error {
		opened, err := parquet.OpenFile(f.file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return err
		}
		rows, root = parquet.NewGenericReader[any](opened), opened.Schema()
		f.halves = map[string]bool{}
		for _, element := range opened.Metadata().Schema {
			if _, half := element.LogicalType.Value.(*format.Float16Type); half {
				f.halves[element.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		return f.problem(0, 0, "expected a Parquet file: %v", err)
	}
	f.columns = []string{}
	for _, column := range root.Fields() {
		f.columns = append(f.columns, column.Name())
	}
	f.next = func() (*input.Node, error) { return f.parquetRow(rows, root) }
	return nil
}

func (f *file) parquetRow(rows *parquet.GenericReader[any], root parquet.Node) (*input.Node, error) {
	f.line++
	values := make([]any, 1)
	n := 0
	err := undamaged(func() (err error) {
		n, err = rows.Read(values)
		return err
	})
	switch {
	case n == 1 && errors.Is(err, io.EOF): // which comes again
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case err != nil:
		return nil, f.last(f.problem(f.line, 1, "the row cannot be read: %v", err))
	}
	cells, ok := values[0].(map[string]any)
	if !ok {
		return nil, f.last(f.problem(f.line, 1, "expected a row, got %T", values[0]))
	}
	row := &input.Node{Kind: input.Object, File: f.name, Line: f.line, Column: 1}
	for _, column := range root.Fields() {
		name := column.Name()
		if f.uses != nil && !f.uses(name) {
			continue // whatever its value is
		}
		v, err := f.value(column, cells[name])
		if err != nil {
			p := f.problem(f.line, 1, "%v", err)
			p.Key = name
			return nil, p
		}
		row.Members = append(row.Members, input.Member{Key: name, Line: f.line, Column: 1, Value: v})
	}
	return row, nil
}

// undamaged calls f. A damaged file is an error, even if the library panics.
func undamaged(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged (%v)", p)
		}
	}()
	return f()
}

// value converts a value of a column to JSON. The column is nil where a JSON column has objects.
func (f *file) value(column parquet.Node, v any) (*input.Node, error) {
	n := &input.Node{File: f.name, Line: f.line, Column: 1}
	switch v := v.(type) {
	case nil:
	case bool:
		n.Kind, n.Text = input.Bool, strconv.FormatBool(v)
	case string:
		n.Kind, n.Text = input.String, v
	case []byte:
		var err error
		if n.Kind, n.Text, err = f.ofBytes(column, v); err != nil {
			return nil, err
		}
	case float32:
		n.Kind, n.Text = input.Number, strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		n.Kind, n.Text = input.Number, strconv.FormatFloat(v, 'g', -1, 64)
	case int32:
		n.Kind, n.Text = whole(column, int64(v))
	case int64:
		n.Kind, n.Text = whole(column, v)
	case *big.Float:
		n.Kind, n.Text = input.Number, decimal(column, v)
	case *[]byte, *int32, *int64, *uint32, *uint64, *float32, *float64, *bool: // the values of a map that may be null
		at := reflect.ValueOf(v)
		if at.IsNil() {
			return n, nil
		}
		return f.value(column, at.Elem().Interface())
	case uint32, uint64:
		n.Kind, n.Text = input.Number, fmt.Sprint(v)
	case []any:
		return n, f.items(n, column, v)
	case map[string]any:
		return n, f.members(n, column, v)
	default:
		return nil, fmt.Errorf("values of the type %T are not understood", v)
	}
	if !utf8.ValidString(n.Text) {
		return nil, errors.New("expected UTF-8 text, got bytes that are not UTF-8")
	}
	if f, err := strconv.ParseFloat(n.Text, 64); n.Kind == input.Number && err == nil &&
		(math.IsNaN(f) || math.IsInf(f, 0)) {
		return nil, fmt.Errorf("expected a finite number, got %s", n.Text)
	}
	return n, nil
}

func (f *file) items(n *input.Node, column parquet.Node, values []any) (err error) {
	n.Kind, n.Items = input.Array, make([]*input.Node, len(values))
	if _, ok := logicalType(column).(*format.ListType); ok { // a group of a repeated group of the element
		column = field(field(column, ""), "")
	}
	for i, v := range values {
		if n.Items[i], err = f.value(column, v); err != nil {
			return err
		}
	}
	return nil
}

func (f *file) members(n *input.Node, column parquet.Node, values map[string]any) error {
	n.Kind = input.Object
	of := func(name string) parquet.Node { return field(column, name) }
	if _, ok := logicalType(column).(*format.MapType); ok { // a group of a repeated group of key and value
		pair := field(column, "")
		of = func(string) parquet.Node { return field(pair, "value") }
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v, err := f.value(of(name), values[name])
		if err != nil {
			return err
		}
		n.Members = append(n.Members, input.Member{Key: name, Line: n.Line, Column: n.Column, Value: v})
	}
	return nil
}

// field returns a field of a group, the first one for an empty name; nil if there is none.
func field(column parquet.Node, name string) parquet.Node {
	if column == nil || column.Leaf() {
		return nil
	}
	for _, one := range column.Fields() {
		if name == "" || one.Name() == name {
			return one
		}
	}
	return nil
}

// inUnits returns a time of day that is given in units.
func inUnits(unit format.TimeUnit, v int64) time.Duration {
	switch unit.Value.(type) {
	case *format.MilliSeconds:
		return time.Duration(v) * time.Millisecond
	case *format.MicroSeconds:
		return time.Duration(v) * time.Microsecond
	}
	return time.Duration(v)
}

func logicalType(column parquet.Node) format.LogicalTypeValue {
	if column == nil || column.Type() == nil || column.Type().LogicalType() == nil {
		return nil
	}
	return column.Type().LogicalType().Value
}

// ofBytes returns the value of a column of bytes: a text, a UUID, or a number of 16 bits.
func (f *file) ofBytes(column parquet.Node, v []byte) (kind input.Kind, text string, err error) {
	switch logicalType(column).(type) {
	case *format.UUIDType:
		if len(v) == len(uuid.Nil) {
			return input.String, uuid.UUID(v).String(), nil
		}
	case nil:
		if field, ok := column.(parquet.Field); ok && f.halves[field.Name()] && len(v) == 2 { // the library has no such type
			return input.Number, strconv.FormatFloat(float16(binary.LittleEndian.Uint16(v)), 'g', -1, 64), nil
		}
		if column != nil && column.Leaf() && column.Type().Kind() == parquet.FixedLenByteArray {
			return 0, "", fmt.Errorf("values of the type %s are not understood", column.Type())
		}
	}
	return input.String, string(v), nil
}

// float16 returns the number with these bits, by IEEE 754.
func float16(bits uint16) float64 {
	const mantissa, most = 10, 31
	sign := 1.0
	if bits>>15 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>mantissa)&most, float64(bits&(1<<mantissa-1))
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case most:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(fraction+1<<mantissa, exponent-25)
}

// decimal returns all digits of a number, without zeros at its end.
func decimal(column parquet.Node, v *big.Float) string {
	scale := 0
	if t, ok := logicalType(column).(*format.DecimalType); ok {
		scale = int(t.Scale)
	}
	text := v.Text('f', scale)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// whole returns a whole number; dates and times are texts as in RFC 3339.
func whole(column parquet.Node, v int64) (input.Kind, string) {
	switch t := logicalType(column).(type) {
	case *format.IntType:
		if !t.IsSigned {
			return input.Number, strconv.FormatUint(uint64(v), 10)
		}
	case *format.TimeType:
		return input.String, time.Time{}.Add(inUnits(t.Unit, v)).Format("15:04:05.999999999")
	case *format.DateType:
		return input.String, time.Unix(v*24*60*60, 0).UTC().Format(time.DateOnly)
	case *format.TimestampType:
		at := time.Unix(0, v)
		switch t.Unit.Value.(type) {
		case *format.MilliSeconds:
			at = time.UnixMilli(v)
		case *format.MicroSeconds:
			at = time.UnixMicro(v)
		}
		return input.String, at.UTC().Format(time.RFC3339Nano)
	}
	return input.Number, strconv.FormatInt(v, 10)
}
