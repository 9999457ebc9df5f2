// One question to a model with a tool, through Vercel's `ai`: node vercel.mjs WIRE URL stream|whole
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [wire, url, mode] = process.argv.slice(2);
const apiKey = "none";
const models = {
  openai_chat: () => createOpenAICompatible({ name: "x", baseURL: `${url}/v1`, apiKey })("m"),
  openai_responses: () => createOpenAI({ baseURL: `${url}/v1`, apiKey }).responses("m"),
  anthropic: () => createAnthropic({ baseURL: `${url}/v1`, apiKey })("m"),
  gemini: () => createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey })("m"),
};

const asked = [];
const get_weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string(), days: z.number().int().nullable() }),
  execute: async ({ city, days }) => {
    asked.push([city, days]);
    return "Sunny";
  },
});
const question = {
  model: models[wire](),
  tools: { get_weather },
  stopWhen: stepCountIs(3),
  prompt: "Weather in Oslo?",
  maxRetries: 0,
};
const answer = mode === "stream" ? streamText(question) : await generateText(question);
console.log(JSON.stringify({ text: await answer.text, asked }));
