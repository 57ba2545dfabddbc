// Types of penstock.js, for editors and TypeScript. The broker serves this file beside the module.

/** Text is encoded as UTF-8; null is a record without a key, or a delete. */
export type Content = string | Uint8Array | ArrayBuffer | null;

export interface Credentials {
  user?: string;
  password?: string;
  /** A bearer token (OAUTHBEARER). */
  token?: string;
}

export interface SubscribeOptions {
  /** Where to begin without a committed position; a map has the next offset of each partition. */
  from?: "committed" | "latest" | "earliest" | Record<number, number>;
  /** The broker keeps the position of a group. */
  group?: string;
  /** "queue": each record goes to one subscriber of the group. The topic selects the default. */
  mode?: "fanout" | "queue";
  /** Records on their way to this subscription at one time. */
  credit?: number;
  /** Records count as handled when they are sent. */
  autoAck?: boolean;
}

export interface PublishOptions {
  key?: Content;
  headers?: ReadonlyArray<readonly [name: string, value: Content]>;
  partition?: number;
  /** Milliseconds since 1970; the time of the broker by default. */
  timestamp?: number;
}

export interface Published {
  partition: number;
  offset: number;
}

/** The answer of the broker to a subscription. */
export interface Subscribed {
  subscription: number;
  partitions: Record<number, number>;
  partition_count: number;
  /** Of a queue. */
  mode?: string;
  group?: string;
  lock_ms?: number;
}

/** A request that the broker refused, or that the connection interrupted. */
export class PenstockError extends Error {
  constructor(message: string, code?: string, retriable?: boolean);
  /** A name of Kafka's error codes, such as "TOPIC_AUTHORIZATION_FAILED"; "" if there is none. */
  readonly code: string;
  readonly retriable: boolean;
}

/** A record of a topic. */
export class PenstockRecord {
  private constructor();
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** Milliseconds since 1970. */
  readonly timestamp: number;
  /** 1 for the first delivery of a queue; 0 without a queue. */
  readonly deliveryCount: number;
  readonly headers: ReadonlyArray<readonly [name: string, value: Uint8Array | null]>;
  readonly keyBytes: Uint8Array | null;
  readonly valueBytes: Uint8Array | null;
  /** The value as text; null for a delete, undefined if it is not UTF-8. */
  get value(): string | null | undefined;
  /** The key as text; null without a key, undefined if it is not UTF-8. */
  get key(): string | null | undefined;
  /** The value as JSON. */
  json<T = unknown>(): T;
}

/** One subscription. It lives over broken connections until `close`. */
export class Subscription {
  private constructor();
  readonly topic: string;
  /** Partition to the next offset; null before the broker has answered. */
  readonly positions: Record<number, number> | null;
  readonly isClosed: boolean;
  /** Resolves when the broker has accepted the subscription; rejects if it refuses it. */
  readonly ready: Promise<Subscribed>;
  /** End the subscription. */
  close(): void;
}

export interface PenstockEvents {
  open: Event;
  close: CustomEvent<PenstockError>;
  error: CustomEvent<unknown>;
}

/** A client of one broker, which connects again whenever its connection breaks. */
export class Penstock extends EventTarget {
  /** `url` is such as "ws://localhost:8081/v1/push". */
  constructor(url: string, credentials?: Credentials);
  readonly isConnected: boolean;
  readonly isClosed: boolean;
  /** Call `handler` with each record of a topic, in the order of its partition. */
  subscribe(
    topic: string,
    options: SubscribeOptions | null | undefined,
    handler: (record: PenstockRecord) => unknown,
  ): Subscription;
  /** Append a record; resolves when it is on the disk of the broker. */
  publish(topic: string, value: Content, options?: PublishOptions): Promise<Published>;
  /** End all subscriptions and the connection. */
  close(): void;
  addEventListener<Name extends keyof PenstockEvents>(
    type: Name,
    listener: (event: PenstockEvents[Name]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
}
