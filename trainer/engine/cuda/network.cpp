/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include "images.h"
#include "number.h"
#include "update.h"

namespace {

/* Takes layers off the table one by one; the first surprise ends the walk. */
struct walk {
	const net_plan *plan;
	const engine_layout *layout;
	network *net;
	int next;
	bool good;

	const net_layer *take(layer_op op)
	{
		good = good && next < plan->n_layers && plan->layers[next].op == op;
		return good ? &plan->layers[next++] : nullptr;
	}
	size_t offset(int param) const
	{
		return layout->groups[plan->n_params - 1 - param].offset;
	}
	void bn(bn_place *place)
	{
		const net_layer *l = take(OP_BN_RELU);
		if (!good)
			return;
		const net_bn *b = &plan->bns[l->bn];
		*place = { offset(b->weight), offset(b->bias), b->offset, b->channels };
	}
	void conv(conv_place *place)
	{
		const net_layer *l = take(OP_CONV);
		if (!good)
			return;
		const int padded = l->c_in % 8 ? STEM_CHANNELS : l->c_in;
		*place = { l->weight, offset(l->weight), net->copy_count, l->h_in, l->h_out, l->c_in, padded, l->c_out, l->k, l->stride, l->pad };
		net->copy_count += (size_t)l->c_out * (size_t)(l->k * l->k) * (size_t)padded;
		good = l->c_out % 8 == 0 && padded >= l->c_in;
		next -= !good;
	}
};

void walk_block(walk *w, dense_block *b, int side, int channels, int layers)
{
	b->side = side;
	b->c_in = b->channels = channels;
	b->layers = layers;
	for (int i = 0; i < layers && w->good; i++) {
		dense_layer *l = &b->layer[i];
		l->c_in = b->channels;
		w->bn(&l->bn1);
		w->conv(&l->conv1);
		w->bn(&l->bn2);
		w->conv(&l->conv2);
		w->take(OP_CONCAT);
		b->channels += w->net->growth;
	}
}

} // namespace

int network_make(network *net, const engine_conf *conf, error *e)
{
	const net_plan *plan = conf->plan;
	*net = {};
	net->growth = plan->growth;
	net->bottleneck = plan->bottleneck * plan->growth;
	net->blocks = plan->n_blocks;
	net->classes = plan->classes;
	walk w = { plan, conf->layout, net, 0, true };
	w.conv(&net->stem);
	w.bn(&net->stem_bn);
	const net_layer *pool = w.take(OP_MAXPOOL);
	int side = pool ? pool->h_out : 0, channels = net->stem.c_out;
	net->stem_side = net->stem.h_out;
	for (int i = 0; i < net->blocks && w.good; i++) {
		dense_block *b = &net->block[i];
		if (i) {
			w.bn(&b->transition_bn);
			w.conv(&b->transition);
			w.take(OP_AVGPOOL);
			if (side % 2)
				return fail(e, EXIT_USAGE, "the CUDA engine needs maps of even size before a transition: block %d of %s has %dx%d; choose an image size that is a multiple of %d",
				            i, plan->model, side, side, 4 << (net->blocks - 1));
			side /= 2;
			channels = b->transition.c_out;
			b->transition.h_in = b->transition.h_out = side; /* the pool comes first here: both commute */
		}
		walk_block(&w, b, side, channels, plan->block[i]);
		channels = b->channels;
	}
	w.bn(&net->head_bn);
	w.take(OP_GLOBAL_AVGPOOL);
	const net_layer *classifier = w.take(OP_LINEAR);
	if (!w.good)
		return fail(e, EXIT_USAGE, "the CUDA engine computes DenseNets whose channels are multiples of 8; layer %d of %s (%s) is something else", w.next, plan->model,
		            w.next < plan->n_layers ? plan->layers[w.next].name : "the end");
	net->features = channels;
	net->classifier_param = classifier->weight;
	net->classifier_weight = w.offset(classifier->weight);
	net->classifier_bias = w.offset(classifier->bias);
	return 0;
}

size_t update_blocks(const net_plan *plan)
{
	size_t blocks = 0;
	for (int i = 0; i < plan->n_params; i++)
		blocks += (plan->params[i].count + UPDATE_THREADS - 1) / UPDATE_THREADS;
	return blocks;
}

template <class T> void memory<T>::lay_out(arena *m, const network *net, const engine_conf *conf, size_t partial_floats, size_t workspace_bytes)
{
	const net_plan *plan = conf->plan;
	const size_t n = (size_t)conf->batch, slab_count = conf->layout->slab_count, bns = plan->n_bn_channels;
	const size_t image = (size_t)plan->image_size * (size_t)plan->image_size, source = (size_t)conf->source_size * (size_t)conf->source_size;
	const size_t stem_map = n * (size_t)net->stem_side * (size_t)net->stem_side * (size_t)net->stem.c_out;
	m->take(weights, slab_count);
	m->take(moment1, slab_count);
	m->take(moment2, slab_count);
	m->take(slab, slab_count);
	m->take(copy, net->copy_count);
	m->take(running_mean, bns);
	m->take(running_variance, bns);
	m->take(unbias, bns);
	m->take(pixels, n * source * (size_t)conf->channels);
	m->take(labels, n);
	m->take(known, n);
	m->take(image_weight, n);
	m->take(pos_weight, (size_t)plan->classes);
	m->take(window, n);
	m->take(images, n * image * STEM_CHANNELS);
	m->take(stem, stem_map);
	m->take(stem_gradient, stem_map);
	size_t widest = (size_t)net->bottleneck, largest = 0, largest_bottleneck = 0;
	for (int i = 0; i < net->blocks; i++) {
		const dense_block *b = &net->block[i];
		const size_t map_pixels = n * (size_t)b->side * (size_t)b->side, channels = (size_t)b->channels;
		m->take(map[i], map_pixels * channels);
		for (int l = 0; l < b->layers; l++)
			m->take(bottleneck[i][l], map_pixels * (size_t)net->bottleneck);
		m->take(block_mean[i], channels);
		m->take(block_rstd[i], channels);
		m->take(block_square[i], channels);
		widest = channels > widest ? channels : widest;
		const size_t inputs = map_pixels * (channels > (size_t)net->bottleneck ? channels : (size_t)net->bottleneck);
		largest = inputs > largest ? inputs : largest;
		largest_bottleneck = map_pixels * (size_t)net->bottleneck > largest_bottleneck ? map_pixels * (size_t)net->bottleneck : largest_bottleneck;
	}
	m->take(gradient[0], largest);
	m->take(gradient[1], largest);
	m->take(activation, largest);
	m->take(back, largest);
	m->take(dz, largest_bottleneck);
	m->take(scale, bns);
	m->take(bias, bns);
	m->take(mean, bns);
	m->take(rstd, bns);
	m->take(square, bns);
	m->take(s1, widest);
	m->take(s2, widest);
	m->take(a, widest);
	m->take(b, widest);
	m->take(c, widest);
	m->take(sums, (size_t)SUM_BLOCKS * 2 * (widest > 128 ? widest : 128));
	m->take(partial, partial_floats);
	m->take(pooled, n * (size_t)net->features);
	m->take(logits, n * (size_t)net->classes);
	m->take(dlogits, n * (size_t)net->classes);
	m->take(dpooled, n * (size_t)net->features);
	m->take(groups, (size_t)plan->n_params);
	m->take(block_group, update_blocks(plan));
	m->take(block_first, update_blocks(plan));
	m->take(step, 1);
	char *bytes;
	m->take(bytes, workspace_bytes);
	workspace = bytes;
}

template struct memory<float>;
template struct memory<bf16>;
template struct memory<fp16>;
