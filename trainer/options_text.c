/* SPDX-License-Identifier: Apache-2.0
 * What is written from the option tables: help, man page, bash completion. */
#include "options.h"

#include <string.h>

enum { HELP_COLUMN = 28, HELP_WIDTH = 100 };

static int is_last(const struct option *o)
{
	return !o->name && !o->help;
}

/* Characters of UTF-8 text, each one column wide. */
static int columns(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

/* Prints text in lines of at most HELP_WIDTH, each after the first indented; `column` is where the first one begins. */
static void print_wrapped(FILE *out, const char *text, int column, int indent)
{
	while (*text) {
		size_t word = strcspn(text, " ");

		if (column + 1 + (int)word > HELP_WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			fputc(' ', out);
			column++;
		}
		fwrite(text, 1, word, out);
		column += (int)word;
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void option_sentence(const struct option *o, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "%s", o->help);

	if (o->type == OPTION_CHOICE) {
		for (int i = 0; o->choices[i] && used < size; i++)
			used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "|" : ": ", o->choices[i]);
	}
	/* "0: …" in the sentence already says what the default does */
	if (o->standard && !(strcmp(o->standard, "0") == 0 && strstr(o->help, "0: ")) && used < size)
		snprintf(text + used, size - used, " (default %s)", o->standard);
}

static void option_heading(const struct option *o, char *text, size_t size)
{
	if (o->type == OPTION_FLAG)
		snprintf(text, size, o->standard && strcmp(o->standard, "yes") == 0 ? "--[no-]%s" : "--%s", o->name);
	else
		snprintf(text, size, "--%s=%s", o->name, o->argument);
}

void options_help(const struct command *command, FILE *out)
{
	fprintf(out, "usage: chexnet %s [--OPTION…]%s%s\n\n", command->name, command->operands ? " " : "",
		command->operands ? command->operands : "");
	print_wrapped(out, command->description ? command->description : command->summary, 0, 0);
	for (const struct option *row = command->options; !is_last(row); row++) {
		const struct option *o = option_of(command, row);
		char left[128], sentence[512];

		if (!o)
			continue;
		if (o->type == OPTION_HEADING) {
			fprintf(out, "\n%s:\n", o->help);
			continue;
		}
		option_heading(o, left, sizeof left);
		option_sentence(o, sentence, sizeof sentence);
		int width = columns(left);

		fprintf(out, "  %s%*s", left, width < HELP_COLUMN - 2 ? HELP_COLUMN - 2 - width : 0, "");
		if (width > HELP_COLUMN - 3)
			fprintf(out, "\n%*s", HELP_COLUMN, "");
		print_wrapped(out, sentence, HELP_COLUMN, HELP_COLUMN);
	}
}

/* troff reads a leading dot or quote as a request and "-" as a hyphen; in the locale C it has no "…". */
static void print_troff(FILE *out, const char *text)
{
	for (const char *p = text; *p; p++) {
		if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n'))
			fputs("\\&", out);
		if (*p == '-')
			fputs("\\-", out);
		else if (*p == '\\')
			fputs("\\e", out);
		else if (strncmp(p, "…", sizeof "…" - 1) == 0) {
			fputs("...", out);
			p += sizeof "…" - 2;
		} else
			fputc(*p, out);
	}
}

static void man_command(const struct command *c, FILE *out)
{
	fprintf(out, ".SS chexnet %s \\fR[\\fB\\-\\-\\fIoption\\fR...]", c->name);
	if (c->operands) {
		fputs(" \\fI", out);
		print_troff(out, c->operands);
		fputs("\\fR", out);
	}
	fputc('\n', out);
	print_troff(out, c->description ? c->description : c->summary);
	fputc('\n', out);
	for (const struct option *row = c->options; !is_last(row); row++) {
		const struct option *o = option_of(c, row);
		char left[128], sentence[512];

		if (!o)
			continue;
		if (o->type == OPTION_HEADING) {
			fputs(".PP\n.I ", out);
			print_troff(out, o->help);
			fputc('\n', out);
			continue;
		}
		option_heading(o, left, sizeof left);
		option_sentence(o, sentence, sizeof sentence);
		fputs(".TP\n.B ", out);
		print_troff(out, left);
		fputc('\n', out);
		print_troff(out, sentence);
		fputc('\n', out);
	}
}

static const char man_head[] =
	".TH CHEXNET 1 2026-11-23 \"slurm-hvd " HVD_VERSION "\" \"User commands\"\n"
	".SH NAME\n"
	"chexnet \\- train and use CheXNet, a DenseNet\\-121 for 14 findings on chest X\\-rays\n"
	".SH SYNOPSIS\n"
	".B srun \\-\\-gpu\\-bind=socket \\-\\-hvd chexnet\n"
	"[\\fB\\-\\-\\fIoption\\fR...]\n"
	".br\n"
	".B chexnet\n"
	"\\fIcommand\\fR [\\fB\\-\\-\\fIoption\\fR...] [\\fIoperand\\fR...]\n"
	".SH DESCRIPTION\n"
	"Without a command,\n"
	".B chexnet\n"
	"trains. In a job step every task is one rank: gradients are averaged over all of them while the backward pass runs.\n"
	"Without \\fB\\-\\-data\\fR it trains on built\\-in synthetic X\\-rays and says so in its first line.\n"
	"An option is written \\fB\\-\\-name=value\\fR or \\fB\\-\\-name value\\fR; \\fB\\-\\-no\\-name\\fR switches a flag off.\n"
	".SH COMMANDS\n";

static const char man_tail[] =
	".SH EXIT STATUS\n"
	".TP\n.B 0\nDone.\n"
	".TP\n.B 64\nUsage: an unknown option, an impossible combination, or a place to write to that is none.\n"
	".TP\n.B 65\nThe input data are bad; the line names file, record and byte.\n"
	".TP\n.B 70\nA rank was lost, memory, disk space or a permission is missing, or an internal error.\n"
	".TP\n.B 75\nStopped early (signal or time budget) with everything saved; \\fB\\-\\-resume=auto\\fR goes on.\n"
	".SH ENVIRONMENT\n"
	".TP\n.B HVD_THREADS\nCPU threads of this rank, from 1 to 8192, as \\fBsrun \\-\\-hvd\\fR sets it; \\fB\\-\\-threads\\fR wins.\n"
	".TP\n.B HVD_GPU\\fR, \\fBCUDA_VISIBLE_DEVICES\nThe GPU of this rank, as shown in the placement table.\n"
	".TP\n.B HVD_POLICY\nThe placement's policy: whether \\fBdoctor\\fR takes CPUs that ranks share for meant.\n"
	".TP\n.B HVD_DEADLINE\\fR, \\fBHVD_BACKEND\\fR, \\fBHVD_IFACE\\fR, \\fBHVD_TRACE\\fR, \\fBHVD_ON_DEATH\\fR, \\fBHVD_PLAN\\fR, \\fBHVD_WIRE\\fR, \\fBHVD_SYNC\n"
	"See \\fBlibhvd\\fR(3).\n"
	".TP\n.B RANK\\fR and \\fBWORLD_SIZE\\fR, \\fBOMPI_COMM_WORLD_RANK\\fR and \\fBOMPI_COMM_WORLD_SIZE\\fR, \\fBPMI_RANK\\fR and \\fBPMI_SIZE\n"
	"What torchrun and mpirun call their processes: ranks are counted by the job step and PMIx alone, and where these say more, a line warns.\n"
	".TP\n.B CUDNN_HOME\\fR, \\fBNCCL_HOME\\fR, \\fBCUDA_HOME\nWhere the libraries of the CUDA engine are looked for after the program's own directory. Then come the system's, /usr/local/cuda, and the\n"
	"wheels of the Python environment: VIRTUAL_ENV, or where python3 in PATH is.\n"
	".TP\n.B TMPDIR\nWhere \\fBbench data\\fR makes its images (/tmp).\n"
	".TP\n.B CHEXNET_GRAPHS\\fR, \\fBCHEXNET_FUSED\\fR, \\fBCHEXNET_EARLY\\fR, \\fBCHEXNET_WGMMA\n"
	"For work on the CUDA engine. GRAPHS=0: every step is enqueued anew, to find what goes wrong in one. FUSED=BITS[:FIRST\\-LAST]: fused kernels of a dense layer (1: 1x1 forward, 2:\n"
	"1x1 backward, 4: 3x3 forward, 8: 3x3 backward) in those layers, 16: weight gradients of 1x1 and 3x3 convolutions that are not fused, 32: the stem of gray images, and 64: sums merged by\n"
	"the fused kernel that reads them, without a launch. These are taken where nothing is said; not yet timed on a GPU are 128: what a layer leaves backward is merged by blocks beside the next\n"
	"kernel's, without a launch, 256: backward, as few blocks as have no more tiles each, and 512: the 3x3 backward of small maps by the kernel of the larger ones. EARLY=0: no kernel is\n"
	"launched before the one before has ended. WGMMA=0: none of those for the tensor cores of sm_90a, which are taken where they can run.\n"
	".SH FILES\n"
	"What a training leaves in \\fB\\-\\-output\\fR:\n"
	".TP\n.I model.safetensors\nThe weights that were judged, when the training is at its end; \\fIbest.safetensors\\fR: the best so far, by mean AUROC on the validation split,\n"
	"those since the last checkpoint as \\fIbest.safetensors.new\\fR, those of a course that was left as \\fIbest.safetensors.abandoned\\fR, where \\fB\\-\\-resume\\fR of one\n"
	"of its checkpoints finds them.\n"
	".TP\n.I checkpoint\\-STEP.safetensors\nAll that \\fB\\-\\-resume\\fR needs; the last \\fB\\-\\-keep\\fR of them.\n"
	".TP\n.I test.csv\nLabels and logits of the test split's images, as \\fBeval \\-\\-predictions\\fR writes them: a comment with their origin, column names (id, patient, split, FINDING_label, FINDING_logit),\n"
	"a row an image.\n"
	".TP\n.I log.jsonl\nEvents, one JSON object a line, unless \\fB\\-\\-log\\-json\\fR names another file; see below.\n"
	".TP\n.I tensorboard/\nWith \\fB\\-\\-tensorboard\\fR.\n"
	".TP\n.I lock\nWhile the training runs: a second one in the same directory is refused. A later run of the same Slurm job takes the directory over; the earlier one, where it still runs, as on a node that was\n"
	"only cut off, ends before it writes another checkpoint.\n"
	".PP\nWhere a file of any command takes the place of an older one, it has that one's owner, group, mode and access list (ACL), as far as the user may give them; a new one has what umask says. One that is mounted by itself, as into a container, is written over. A directory that \\fB\\-\\-overwrite\\fR replaces has the old one's; the files in it are new, and its owner's.\n"
	".SH JSON\n"
	"Keys may be added; a reader skips those that it does not know. null: not known, or not defined. AUROCs are objects of auroc, the ends of the 95 % interval low and high, its\n"
	"method, and the standard error se. percentile: of the resamples of patients; se is the standard deviation of these. newcombe, where resamples promise too much (and no narrower than these say on the logit scale), and square\\-and\\-add, a mean's\n"
	"percentiles widened by such findings: se is (high \\- low) / 3.92. Findings have positives, positive_patients, negatives and, on synthetic images, oracle as well: the AUROC that no model passes on average.\n"
	".TP\n.B log.jsonl\nEach object has event and time (seconds since 1970). start: version, command, model, engine, global_batch, seed, steps, splits (images and patients of each), and places, for each rank host, gpu, cpus and threads, among\n"
	"others; step: step and position (images before it), loss (as \\fB\\-\\-pos\\-weight\\fR weighs it, of known labels of what is learnt), lr, images_per_s (since the last line of progress), input_share and communication_share of the step's time; eval: step (of the weights), split, images, patients, loss, weighted_loss (with \\fB\\-\\-pos\\-weight\\fR, and then what compares with that of a step), mean, findings;\n"
	"checkpoint: path, and the seconds that it took, which are no part of images_per_s, nor are those of validations, or of a suspension; recovered: ranks, reason; summary: steps, images, seconds, images_per_s; end: code (the exit status), reason.\n"
	".TP\n.B eval\nversion (of the program), weights, weights_hash, model, split, images, patients, loss, resamples, seed, mean, findings (of one that the weights have not learned all is null; ece to calibration_intercept as of report), mean_brier_skill, leak (whether patients of the training are known to be in the split, or its own splits shared some; null where not all of its patients were looked for and none is known) and leak_checked (whether all were), order (assumed, where the weights do not name the findings of their outputs).\n"
	".TP\n.B predict\nAn array with an object an image: image, and error, or probabilities and logits by finding, untrained (the findings that the weights have not learned, if any),\n"
	"pos_weight (balanced, where training weighed positives more: such probabilities rank images, and are far above the share that shows a finding), order as of eval, trained_on, weights_hash, version, notice, and with \\fB\\-\\-maps\\fR map; where \\fB\\-\\-boxes\\fR has a box of it, pointing: its patient, and findings: of each whether its map made a hit, and the chance that one of the map\\(aqs cells at random does.\n"
	".TP\n.B compare\na and b (the files), leak_a, leak_b, leak_checked_a and leak_checked_b (as of eval), version, resamples, seed, images, patients, mean, and findings: objects of both AUROCs, a and b, their difference, low, high and se of that (percentiles of the resamples and their standard deviation), p, p_holm and p_delong;\n"
	"p_is_bound and holm_is_bound: so many resamples cannot go below that p.\n"
	".TP\n.B report\nAbout the predictions: model, weights_hash, split, images, patients, leak, leak_checked and order as of eval, pos_weight as of predict, and more; version (of the program that made the report), resamples and seed; mean_auroc, mean_brier_skill (with its ends, too), and findings: auroc, average_precision, ece (and ece_by_chance: about what it is where every probability is right), brier, brier_skill (1 less the Brier score over that of the share alone), observed_to_expected (images with the finding over the sum of the probabilities), calibration_in_the_large (what added to every logit makes both equal), calibration_slope and calibration_intercept (of the regression on the logit), these six with the ends of its 95 % interval, as in brier_low and brier_high, and operating_points (with true_positives and such counts; ppv and npv have the ends of an interval where \\fB\\-\\-thresholds\\fR chose the point), among others; with \\fB\\-\\-pointing\\fR pointing: maps, patients, hits, hits_by_chance, cannot_hit (maps without a cell whose middle lies in a box), and share (of hits), of all and of findings; p_at_most; images_not_predicted and images_without_patient. The value of an\n"
	"interval is here called value, and its method may also be wilson, of a share of few patients, or of all or none of them, with se as of newcombe, logit, of an average precision, symmetric on that scale and by Student\\(aqs quantile, with se as of percentile, or delong, which takes all images for independent: value and 1.96 se to each side.\n"
	".TP\n.B audit\nAn object a path: path, and error, or source, split_policy, patients, splits (counts by finding), auroc_of_column_alone, problems (their number) and items: kind, problem, count, text.\n"
	".TP\n.B bench\nimages_per_s, step_ms (median, min, p10, p90, max), exposed_ms, and what was measured: model, engine, precision, batch, image_size, ranks and more. With \\fB\\-\\-scaling\\fR, scaling is an array\n"
	"with an object for each number of ranks.\n"
	".SH EXAMPLES\n"
	"From NIH's files to a report:\n"
	".PP\n.nf\n"
	"    chexnet prepare nih /data/ChestX\\-ray14 /data/nih256\n"
	"    srun \\-\\-gpu\\-bind=socket \\-\\-hvd chexnet doctor \\-\\-data /data/nih256\n"
	"    srun \\-\\-gpu\\-bind=socket \\-\\-hvd chexnet train \\-\\-data /data/nih256 \\-\\-output run1 \\-\\-resume auto\n"
	"    chexnet predict \\-\\-weights run1/model.safetensors \\-\\-maps maps image.png\n"
	"    chexnet report \\-\\-predictions run1/test.csv \\-\\-log run1/log.jsonl \\-\\-pictures maps \\-\\-out report.html\n"
	".fi\n.PP\n"
	"The training as a batch job, whose lines \\fBsbatch\\fR's own options win over:\n"
	".PP\n.nf\n"
	"    sbatch \\-\\-nodes=4 PREFIX/share/slurm\\-hvd/sbatch/chexnet.sbatch train \\-\\-data /data/nih256 \\-\\-output run1 \\-\\-resume auto\n"
	".fi\n.PP\n"
	"Thresholds chosen on the validation split and judged on the test split, as papers ask for:\n"
	".PP\n.nf\n"
	"    srun \\-\\-gpu\\-bind=socket \\-\\-hvd chexnet eval \\-\\-data /data/nih256 \\-\\-weights run1/model.safetensors \\-\\-split val \\-\\-predictions val.csv\n"
	"    chexnet report \\-\\-predictions run1/test.csv \\-\\-thresholds val.csv \\-\\-out report.html\n"
	".fi\n.PP\n"
	"A try without data, in seconds:\n"
	".PP\n.nf\n"
	"    chexnet \\-\\-model densenet \\-\\-growth 8 \\-\\-blocks 2,2,2 \\-\\-epochs 1 \\-\\-output try\n"
	".fi\n"
	".SH SEE ALSO\n"
	".BR srun (1),\n"
	".BR hvd\\-map (1),\n"
	".BR hvd\\-trace (1),\n"
	".BR libhvd (3),\n"
	".BR spank_hvd (8)\n";

void options_man_page(const struct command *const *commands, FILE *out)
{
	fputs(man_head, out);
	for (; *commands; commands++)
		man_command(*commands, out);
	fputs(man_tail, out);
}

void options_completion(const struct command *const *commands, FILE *out)
{
	fputs("# bash completion for chexnet, written by: chexnet --completion\n_chexnet()\n{\n"
	      "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=train names= operands= values\n"
	      "\t[ \"$COMP_CWORD\" -gt 1 ] && [[ ${COMP_WORDS[1]} != -* ]] && command=${COMP_WORDS[1]}\n"
	      "\tcase $command in\n", out);
	for (const struct command *const *c = commands; *c; c++) {
		fprintf(out, "\t%s) names='", (*c)->name);
		for (const struct option *row = (*c)->options; !is_last(row); row++) {
			const struct option *o = option_of(*c, row);

			if (!o || o->type == OPTION_HEADING)
				continue;
			if (o->type != OPTION_CHOICE)
				fprintf(out, "--%s%s%s ", o->type == OPTION_FLAG && o->standard ? "no-" : "", o->name, o->type == OPTION_FLAG ? "" : "=");
			for (int i = 0; o->type == OPTION_CHOICE && o->choices[i]; i++)
				fprintf(out, "--%s=%s ", o->name, o->choices[i]);
		}
		fputs("--help'", out);
		const char *operands = (*c)->operands;
		const int first = operands ? (int)strcspn(operands, " ") : 0;
		if (first && memchr(operands, '|', (size_t)first))
			fprintf(out, " operands='%.*s'", first, operands);
		fputs(" ;;\n", out);
	}
	fputs("\tesac\n\t[ \"$COMP_CWORD\" -gt 1 ] || operands='", out);
	for (const struct command *const *c = commands; *c; c++)
		fprintf(out, "%s|", (*c)->name);
	fputs("'\n\t[ \"$word\" != = ] || word= # which bash takes for a word\n"
	      "\t[ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}\n"
	      "\tif [[ $before == --* && \" $names\" == *\" $before=\"* ]]; then\n"
	      "\t\tvalues=$(compgen -W \"$names\" -- \"$before=\")\n\t\tnames=${values//\"$before=\"/}\n"
	      "\telif [[ $word != -* ]]; then\n\t\tnames=\n\t\t[ \"$COMP_CWORD\" -gt 2 ] || names=${operands//|/ }\n\tfi\n\tmapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$word\")\n"
	      "\t[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n}\n"
	      "complete -o default -F _chexnet chexnet\n", out);
}
