package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"axlm/gocore/errs"
)

// decodeTyped reads JSON into out, a pointer to a struct; value is the same from
// decodeNumbers. Keys that the struct does not have and values of other types
// are ValueErrors that name the place as the file has it:
//
//	model-manifest.json: tensors[3].offset: want an integer, got "x"
//
// A null leaves what out has, as an absent key does.
func decodeTyped(file string, data []byte, value, out any) error {
	err := mistyped("", value, reflect.TypeOf(out).Elem())
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return errs.Value("%s: %w", file, err)
	}
	return nil
}

// decodeNumbers reads JSON with its numbers as they are written.
func decodeNumbers(file string, data []byte) (any, error) {
	if err := validJSON(file, data); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, errs.Value("%s: %w", file, err)
	}
	return value, nil
}

// mistyped finds the first place in value that a variable of type t cannot
// hold. Only types that such files are made of are known.
func mistyped(path string, value any, t reflect.Type) error {
	if value == nil || t.Kind() == reflect.Interface {
		return nil
	}
	right, want := false, wantInt
	switch t.Kind() {
	case reflect.Pointer:
		return mistyped(path, value, t.Elem())
	case reflect.Struct, reflect.Map:
		object, ok := value.(map[string]any)
		if ok {
			return mistypedKey(path, object, t)
		}
		want = "an object"
	case reflect.Slice:
		list, ok := value.([]any)
		for i, item := range list {
			if err := mistyped(fmt.Sprintf("%s[%d]", path, i), item, t.Elem()); err != nil {
				return err
			}
		}
		right, want = ok, "a list"
	case reflect.String:
		_, right = value.(string)
		want = wantString
	case reflect.Bool:
		_, right = value.(bool)
		want = wantBool
	case reflect.Float64:
		number, ok := value.(json.Number)
		_, err := strconv.ParseFloat(number.String(), 64)
		right, want = ok && err == nil, wantFloat
	default: // int and int64
		number, ok := value.(json.Number)
		_, err := strconv.ParseInt(number.String(), 10, t.Bits())
		right = ok && err == nil
	}
	if right {
		return nil
	}
	if path == "" {
		return fmt.Errorf("want %s, got %s", want, show(value))
	}
	return fmt.Errorf("%s: want %s, got %s", path, want, show(value))
}

// mistypedKey looks through an object's keys in order.
func mistypedKey(path string, object map[string]any, t reflect.Type) error {
	fields := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
				fields[key] = f.Type
			}
		}
	}
	for _, key := range sortedKeys(object, nil) {
		kind, known := fields[key]
		switch {
		case t.Kind() == reflect.Map:
			kind = t.Elem()
		case !known:
			return fmt.Errorf("%s: no such key; there are %s", join(path, key), strings.Join(sortedNames(fields), ", "))
		}
		if err := mistyped(join(path, key), object[key], kind); err != nil {
			return err
		}
	}
	return nil
}

func sortedNames(fields map[string]reflect.Type) []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
