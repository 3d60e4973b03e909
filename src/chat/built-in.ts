// Built-in chat templates by name, for models without a template that were trained on one of the common formats.

const chatml = `{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}`;

// The system message is inside the first user turn; every turn starts with BOS and every answer ends with EOS.
const llama2 = `{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' -%}
{%- elif message.role == 'assistant' -%}
{{ ' ' + message.content + ' ' + eos_token }}
{%- else -%}
{{ bos_token + '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}`;

const zephyr = `{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}`;

const llama3 = `{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}`;

const commandR = `{%- set roles = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} -%}
{%- for message in messages -%}
{{ '<|START_OF_TURN_TOKEN|><|' + roles[message.role] + '_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif -%}`;

/** Has no prototype, so a name from outside finds only templates. */
export const builtInTemplates: Readonly<Record<string, string>> = Object.freeze(
  Object.assign(Object.create(null), {
    chatml,
    llama2,
    llama3,
    zephyr,
    tinyllama: zephyr,
    "command-r": commandR,
  }),
);
