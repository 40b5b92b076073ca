package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Decode reads a JSON object into a struct, which must have a field for each of its keys. The error
// is for the person who wrote the object.
func Decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return Explain(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("expected one JSON object, and something follows it")
	}
	return nil
}

// Explain puts an error of package json, about an object that was read into a struct, into words
// for the person who wrote the object.
func Explain(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return errors.New("expected a JSON object, got a JSON " + wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: expected %s, got a JSON %s", wrong.Field, kindOf(wrong.Type), wrong.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// kindOf returns the JSON type that was expected.
func kindOf(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the others are objects
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice:
		return "an array"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	}
	return "an object"
}
