package weights

import "axlm/gocore/errs"

const endKey = "eos_token_id"

// applyGeneration lets generation_config.json's eos_token_id replace the
// config's, if it is true in Python's sense: 0, [] and null do not count. A
// file that is no JSON is ignored. All as in mlx_lm.
func (f *Folder) applyGeneration(data []byte) {
	values, err := decodeObject(generationFile, data)
	if err != nil {
		return
	}
	if end := values[endKey]; truthy(end) {
		f.Config.values[endKey] = end
	}
}

func truthy(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// EndTokens are the ids that end a text, from generation_config.json or
// config.json, in their order and without repeats; nil where neither names
// any. The tokenizer may add its own.
func (f *Folder) EndTokens() ([]int, error) {
	c := f.Config
	if !c.Has(endKey) {
		return nil, nil
	}
	ids := []int{0}
	var err error
	if _, isList := c.values[endKey].([]any); isList {
		ids, err = c.Ints(endKey)
	} else {
		ids[0], err = c.Int(endKey)
	}
	if err != nil {
		return nil, c.Wrong(endKey, "a token id or a list of them")
	}
	seen := map[int]bool{}
	out := ids[:0]
	for _, id := range ids {
		if id < 0 {
			return nil, errs.Value("%s: token id %d is negative", c.where(endKey), id)
		}
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out, nil
}
