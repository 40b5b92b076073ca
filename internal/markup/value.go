package markup

import (
	"fmt"
	"reflect"
)

// builtins are functions of text/template.
var builtins = map[string]any{
	"and": func(all ...reflect.Value) reflect.Value { return firstThatIs(false, all) },
	"or":  func(all ...reflect.Value) reflect.Value { return firstThatIs(true, all) },
	"not": func(v reflect.Value) bool { return !truth(v) },
	"len": func(v reflect.Value) int { return concrete(v).Len() },
	"lt":  func(a, b int64) bool { return a < b }, "le": func(a, b int64) bool { return a <= b },
	"gt": func(a, b int64) bool { return a > b }, "eq": equal,
	"ne":     func(a, b reflect.Value) bool { return !equal(a, b) },
	"index":  func(v reflect.Value, i int) reflect.Value { return concrete(v).Index(i) },
	"printf": fmt.Sprintf,
}

// firstThatIs returns the first value that is true, or that is false, else the last one.
func firstThatIs(is bool, all []reflect.Value) (v reflect.Value) {
	for _, v = range all {
		if truth(v) == is {
			break
		}
	}
	return v
}

// equal compares texts with texts and numbers with numbers, whatever their types.
func equal(a, b reflect.Value) bool {
	a, b = concrete(a), concrete(b)
	switch {
	case a.CanInt() && b.CanInt():
		return a.Int() == b.Int()
	case a.Kind() == reflect.String && b.Kind() == reflect.String:
		return a.String() == b.String()
	}
	panic(fmt.Sprintf("%v and %v are not compared", typeOf(a), typeOf(b)))
}

// concrete returns what a value that may be an interface or a pointer leads to; nothing if it is nil.
func concrete(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// truth reports whether a value is neither zero nor empty. A struct is always true.
func truth(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Struct:
		return true
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() > 0
	}
	return !v.IsZero()
}

// as returns a value as one of a type, if it is one, points to one or is where one is stored, or if
// both are whole numbers.
func as(v reflect.Value, t reflect.Type) (reflect.Value, bool) {
	if t == reflect.TypeFor[reflect.Value]() {
		return reflect.ValueOf(v), true
	}
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return reflect.Zero(t), t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer
	case v.Type().AssignableTo(t):
		return v, true
	case v.Kind() == reflect.Pointer && v.Type().Elem().AssignableTo(t):
		return v.Elem(), !v.IsNil()
	case v.CanAddr() && v.Addr().Type().AssignableTo(t):
		return v.Addr(), true
	case v.CanInt() && reflect.Zero(t).CanInt():
		return v.Convert(t), true
	}
	return v, false
}

func typeOf(v reflect.Value) any {
	if !v.IsValid() {
		return "nothing"
	}
	return v.Type()
}
