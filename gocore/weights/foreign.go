package weights

import (
	"path/filepath"

	"axlm/gocore/errs"
)

// modelOptFile is where NVIDIA ModelOpt keeps its quantisation apart from
// config.json.
const modelOptFile = "hf_quant_config.json"

// foreignQuantization maps quantization_config, as other tools write it, to
// MLX's packings where the packed weights are the same; nil if there is none.
// What would need the weights converted is not supported.
func foreignQuantization(c *Config, dir string) (*Quant, error) {
	section, err := foreignSection(c, dir)
	if err != nil || len(section.Values()) == 0 {
		return nil, err
	}
	method, err := section.String("quant_method")
	if err != nil {
		return nil, err
	}
	fixed := func(mode string) (*Quant, error) {
		q := floatQuants[mode]
		return &q, nil
	}
	switch method {
	case "mxfp4", "mxfp8":
		return fixed(method)
	case "fp8":
		blocks, _ := section.Ints("weight_block_size")
		if format, _ := section.StringDefault("scale_fmt", ""); format == "ue8m0" &&
			len(blocks) == 2 && blocks[0] == 32 && blocks[1] == 32 {
			return fixed("mxfp8")
		}
	case "compressed-tensors":
		switch format, _ := section.StringDefault("format", ""); format {
		case "nvfp4-pack-quantized":
			return fixed("nvfp4")
		case "mxfp4-pack-quantized":
			return fixed("mxfp4")
		case "pack-quantized":
			return &Quant{GroupSize: 32, Bits: 4, Mode: "affine"}, nil
		default:
			return nil, section.Wrong("format", "a packed integer or fp4 format")
		}
	case "modelopt":
		settings := section
		if section.Has("quantization") {
			if settings, err = section.Map("quantization"); err != nil {
				return nil, err
			}
		}
		if algorithm, err := settings.String("quant_algo"); err != nil {
			return nil, err
		} else if algorithm != "NVFP4" {
			return nil, settings.Wrong("quant_algo", "NVFP4")
		}
		return fixed("nvfp4")
	}
	return nil, errs.NotImplemented("%s: %s weights are not supported; convert the model with mlx_lm.convert",
		section.where("quant_method"), method)
}

// foreignSection finds quantization_config: at the top, in text_config, or in
// ModelOpt's own file.
func foreignSection(c *Config, dir string) (*Config, error) {
	const key = "quantization_config"
	if _, present := c.Values()[key]; present {
		return c.Map(key)
	}
	text, err := c.Map("text_config")
	if err != nil {
		return nil, err
	}
	if _, present := text.Values()[key]; present {
		return text.Map(key)
	}
	data, err := readFile(dir, modelOptFile)
	if errs.Kind(err) == errs.KindNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ParseConfig(filepath.Join(dir, modelOptFile), data)
}
